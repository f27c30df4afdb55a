//! When the Lease `publisher` is written: readers believe deletions by it.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::{
    apply::{Action, Request},
    clusterset::{ClusterId, well_known},
    objects::publisher_lease,
};

/// How often the Lease is renewed.
const RENEWAL: Duration = Duration::from_secs(10);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// What the Lease says of the mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Statement {
    /// Whether everything was published once in this term.
    complete: bool,
    services: usize,
}

/// A time during which this replica publishes.
#[derive(Debug)]
pub struct PublisherTerm {
    epoch: String,
    started: Instant,
    /// What was last written, and when.
    written: Option<(Statement, Instant)>,
    /// What is being written.
    writing: Option<Statement>,
    failed: Option<Instant>,
}

impl PublisherTerm {
    /// A new term.
    pub fn new() -> Self {
        let epoch = format!("{:016x}", fastrand::u64(..));
        Self { epoch, started: Instant::now(), written: None, writing: None, failed: None }
    }

    /// The next write, if it is time for one. `is_settled`: nothing waits to be published, and nothing failed. Until
    /// then readers have the last count that was true.
    pub fn next(
        &mut self,
        mailbox: &str,
        cluster: &ClusterId,
        services: usize,
        is_settled: bool,
    ) -> Option<Request> {
        let recently = |at: Instant, limit| at.elapsed() < limit;
        let statement = self.statement(services, is_settled);
        if !statement.complete && recently(self.started, RENEWAL)
            || self.writing.is_some()
            || self.failed.is_some_and(|at| recently(at, RETRY))
            || self.written.is_some_and(|(last, at)| last == statement && recently(at, RENEWAL))
        {
            return None;
        }
        self.writing = Some(statement);
        let (Statement { complete, services }, now) = (statement, Timestamp::now());
        let object = publisher_lease(mailbox, cluster, &self.epoch, complete, services, now);
        let api = ("coordination.k8s.io", "v1", "Lease", "leases");
        let action = Action::Apply { object, force: true };
        Some(Request::new(api, Some(mailbox), well_known::PUBLISHER_LEASE, action))
    }

    fn statement(&self, services: usize, is_settled: bool) -> Statement {
        let last = self.written.map(|(last, _)| last).filter(|last| last.complete);
        match last {
            Some(last) if !is_settled => last,
            _ if is_settled => Statement { complete: true, services },
            _ => Statement { complete: false, services: 0 },
        }
    }

    /// The write has ended.
    pub fn written(&mut self, succeeded: bool) {
        let now = Instant::now();
        let statement = self.writing.take();
        self.failed = (!succeeded).then_some(now);
        if let Some(statement) = statement.filter(|_| succeeded) {
            self.written = Some((statement, now));
        }
    }
}

impl Default for PublisherTerm {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the Lease says that everything is there, and the count.
    fn said(request: &Request) -> (bool, String) {
        let Action::Apply { object, .. } = &request.action else { panic!("{request:?}") };
        let annotations = &object["metadata"]["annotations"];
        let count = annotations[well_known::PUBLISHED].as_str().unwrap();
        (annotations[well_known::COMPLETE] == "true", count.to_owned())
    }

    #[test]
    fn an_unsettled_renewal_repeats_the_last_count() {
        let long_ago = Instant::now().checked_sub(RENEWAL).unwrap();
        let cluster: ClusterId = "east".parse().unwrap();
        let mut term = PublisherTerm::new();
        assert!(term.next("m", &cluster, 3, false).is_none(), "a new term needs a moment");
        term.started = long_ago;
        let mut next = |services, is_settled| {
            let request = term.next("m", &cluster, services, is_settled);
            term.written(true);
            term.written = term.written.map(|(last, _)| (last, long_ago));
            request.as_ref().map(said)
        };
        assert_eq!(next(3, false), Some((false, "0".to_owned())), "a sign of life only");
        assert_eq!(next(3, true), Some((true, "3".to_owned())));
        assert_eq!(next(0, false), Some((true, "3".to_owned())), "something failed");
        assert_eq!(next(2, true), Some((true, "2".to_owned())));
    }
}
