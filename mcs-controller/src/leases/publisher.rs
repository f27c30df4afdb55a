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

/// A time during which this replica publishes.
#[derive(Debug)]
pub struct PublisherTerm {
    epoch: String,
    /// Whether everything was published once.
    complete: bool,
    /// The count that was last written, and when.
    written: Option<(usize, Instant)>,
    /// What is being written.
    writing: Option<usize>,
    failed: Option<Instant>,
}

impl PublisherTerm {
    /// A new term.
    pub fn new() -> Self {
        let epoch = format!("{:016x}", fastrand::u64(..));
        Self { epoch, complete: false, written: None, writing: None, failed: None }
    }

    /// The next write, if it is time for one. `is_settled`: nothing waits to be published.
    pub fn next(
        &mut self,
        mailbox: &str,
        cluster: &ClusterId,
        services: usize,
        is_settled: bool,
    ) -> Option<Request> {
        self.complete |= is_settled;
        let recently = |at: Instant, limit| at.elapsed() < limit;
        if !self.complete
            || self.writing.is_some()
            || self.failed.is_some_and(|at| recently(at, RETRY))
        {
            return None;
        }
        let is_current = self
            .written
            .is_some_and(|(count, at)| recently(at, RENEWAL) && (count == services || !is_settled));
        if is_current {
            return None;
        }
        self.writing = Some(services);
        let now = Timestamp::now();
        let object = publisher_lease(mailbox, cluster, &self.epoch, true, services, now);
        let api = ("coordination.k8s.io", "v1", "Lease", "leases");
        let action = Action::Apply { object, force: true };
        Some(Request::new(api, Some(mailbox), well_known::PUBLISHER_LEASE, action))
    }

    /// The write has ended.
    pub fn written(&mut self, succeeded: bool) {
        let now = Instant::now();
        let services = self.writing.take();
        self.failed = (!succeeded).then_some(now);
        if let Some(services) = services.filter(|_| succeeded) {
            self.written = Some((services, now));
        }
    }
}

impl Default for PublisherTerm {
    fn default() -> Self {
        Self::new()
    }
}
