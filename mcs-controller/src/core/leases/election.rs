//! The election of the replica that writes. The others read everything too, so that they can take over at once.
//!
//! No replica compares its clock with that of another one. A Lease is over for a replica that has seen it unchanged for as
//! long as it lasts, and for its holder sooner.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use mcs_kube::{ApiAccess, told};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::core::{
    clock,
    status::{Failures, Turn},
};

/// The Lease that the leader holds, in the controller's namespace.
const LEASE: &str = "mcs-controller";
/// How long the leader may be silent before another replica takes over.
const DURATION: Duration = Duration::from_secs(15);
/// How long the leader acts after the last renewal that has succeeded. Requests that are under way have the rest of the time.
const TERM: Duration = Duration::from_secs(13);
/// How often the leader renews the Lease.
const RENEWAL: Duration = Duration::from_secs(4);
/// How often the others look at it, and how long an answer may take when the replica ends.
const POLL: Duration = Duration::from_secs(2);
/// How long an answer may take that keeps nobody from leading.
const PATIENCE: Duration = Duration::from_secs(10);

/// This replica's part in the election, until it is dropped.
#[derive(Debug)]
pub struct Election {
    leads: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Election {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Election {
    /// Takes part under the name of this replica; the Lease is in `namespace`. Without a name, this replica always leads.
    pub fn start(identity: Option<String>, namespace: &str, access: Arc<ApiAccess>) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let (sender, leads) = watch::channel(identity.is_none());
        let namespace = namespace.to_owned();
        let task = tokio::spawn(async move {
            if let Some(identity) = identity {
                let mut part = Part { access, namespace, candidate: Candidate::new(identity) };
                part.take(&sender, &mut stopped).await;
            }
            // The channel has to stay open.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            drop(sender);
        });
        Self { leads, stop, task }
    }

    /// Releases the Lease, if this replica holds it.
    pub async fn end(mut self) {
        self.stop.send_replace(true);
        // It logs its errors.
        let _ = (&mut self.task).await;
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }
}

struct Part {
    access: Arc<ApiAccess>,
    namespace: String,
    candidate: Candidate,
}

impl Part {
    /// Takes part until it is `stopped`.
    async fn take(&mut self, leads: &watch::Sender<bool>, stopped: &mut watch::Receiver<bool>) {
        let mut failures = Failures::default();
        while !*stopped.borrow() {
            let limit = self.candidate.rest(clock::now()).unwrap_or(PATIENCE);
            let done = timeout(limit, self.round()).await;
            let done = done.unwrap_or_else(|_| Err(anyhow::anyhow!("there is no answer")));
            let error = done.err().map(|error| told(&error));
            if failures.note((), error.as_deref()) == Turn::Fails
                && let Some(error) = &error
            {
                tracing::warn!("cannot take part in the election of a leader: {error}");
            }
            let rest = self.candidate.rest(clock::now());
            leads.send_if_modified(|leads| {
                std::mem::replace(leads, rest.is_some()) != rest.is_some()
            });
            let pause = match rest {
                Some(rest) if error.is_none() => rest.min(RENEWAL),
                Some(rest) => rest.min(POLL),
                None => POLL,
            };
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = sleep(pause) => {}
            }
        }
        leads.send_replace(false);
        if let Ok(Err(error)) = timeout(POLL, self.release()).await {
            tracing::warn!("cannot release the Lease {}/{LEASE}: {}", self.namespace, told(&error));
        }
    }

    async fn leases(&self) -> anyhow::Result<Api<Lease>> {
        Ok(Api::namespaced(self.access.connection().await?.client, &self.namespace))
    }

    /// Takes the Lease if it is free, and renews it if this replica holds it.
    async fn round(&mut self) -> anyhow::Result<()> {
        let leases = self.leases().await?;
        let lease = leases.get_opt(LEASE).await?;
        let now = clock::now();
        let Some(wanted) = self.candidate.next(lease.as_ref(), now, clock::time_of_day()) else {
            return Ok(());
        };
        let params = PostParams::default();
        let written = match lease {
            Some(_) => leases.replace(LEASE, &params, &wanted).await,
            None => leases.create(&params, &wanted).await,
        };
        match written {
            Ok(_) => self.candidate.until = Some(now + TERM),
            // Somebody else was faster. The next round sees who.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn release(&self) -> anyhow::Result<()> {
        if self.candidate.until.is_none() {
            return Ok(());
        }
        let leases = self.leases().await?;
        if let Some(mut lease) = leases.get_opt(LEASE).await?
            && self.candidate.holds(&lease)
        {
            let lease_transitions = lease.spec.and_then(|spec| spec.lease_transitions);
            lease.spec = Some(LeaseSpec { lease_transitions, ..LeaseSpec::default() });
            leases.replace(LEASE, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

/// What a replica knows of the Lease.
#[derive(Debug)]
struct Candidate {
    identity: String,
    /// The Lease as last seen, and since when.
    seen: Option<(LeaseSpec, Instant)>,
    /// Until when this replica leads.
    until: Option<Instant>,
}

impl Candidate {
    const fn new(identity: String) -> Self {
        Self { identity, seen: None, until: None }
    }

    /// How much longer this replica leads.
    fn rest(&self, now: Instant) -> Option<Duration> {
        let rest = self.until?.checked_duration_since(now)?;
        (!rest.is_zero()).then_some(rest)
    }

    fn holds(&self, lease: &Lease) -> bool {
        lease
            .spec
            .as_ref()
            .is_some_and(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
    }

    /// The Lease as this replica writes it. `None`: another one holds it.
    fn next(&mut self, lease: Option<&Lease>, now: Instant, time: Timestamp) -> Option<Lease> {
        let spec = lease.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.seen = Some((spec.clone(), now));
        }
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let is_own = lease.is_some_and(|lease| self.holds(lease));
        let is_held = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
        if !is_own && is_held && now.saturating_duration_since(since) < DURATION {
            self.until = None;
            return None;
        }
        let time = Some(MicroTime(time));
        let transitions = spec.lease_transitions.unwrap_or_default();
        let spec = LeaseSpec {
            acquire_time: spec.acquire_time.filter(|_| is_own).or_else(|| time.clone()),
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(if is_own { transitions } else { transitions + 1 }),
            renew_time: time,
            ..spec
        };
        let metadata = lease.map_or_else(
            || ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() },
            |lease| lease.metadata.clone(),
        );
        Some(Lease { metadata, spec: Some(spec) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Lease after a look of this candidate, which writes what it wants to.
    fn look(candidate: &mut Candidate, lease: &mut Option<Lease>, now: Instant, time: i64) -> bool {
        let time = Timestamp::from_second(time).unwrap();
        let Some(wanted) = candidate.next(lease.as_ref(), now, time) else { return false };
        candidate.until = Some(now + TERM);
        *lease = Some(wanted);
        true
    }

    #[test]
    fn a_lease_is_taken_over_once_nobody_has_renewed_it_for_its_duration() {
        let (mut a, mut b) = (Candidate::new("a".to_owned()), Candidate::new("b".to_owned()));
        let (mut lease, begin) = (None, Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(look(&mut a, &mut lease, at(0), 1000));
        // The clock of the other one is a day ahead.
        assert!(!look(&mut b, &mut lease, at(1), 90_000));
        assert!(look(&mut a, &mut lease, at(10), 1010));
        assert!(!look(&mut b, &mut lease, at(11), 90_010));
        assert!(!look(&mut b, &mut lease, at(25), 90_025));
        assert!(look(&mut b, &mut lease, at(26), 90_026));
        let spec = lease.clone().unwrap().spec.unwrap();
        assert_eq!(spec.lease_transitions, Some(2));
        assert_eq!(spec.acquire_time, spec.renew_time);
        // The former leader had stopped before.
        assert_eq!(a.rest(at(22)), Some(Duration::from_secs(1)));
        assert_eq!(a.rest(at(23)), None);
        assert!(!look(&mut a, &mut lease, at(27), 1027));
        assert_eq!(
            (a.until, b.rest(at(27)), b.rest(at(39))),
            (None, Some(Duration::from_secs(12)), None)
        );
    }

    #[test]
    fn a_lease_that_was_released_or_is_its_own_is_taken_at_once() {
        let mut a = Candidate::new("a".to_owned());
        let held = |holder: &str| {
            let spec = LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_transitions: Some(3),
                ..LeaseSpec::default()
            };
            Some(Lease { spec: Some(spec), ..Lease::default() })
        };
        for (holder, transitions) in [("", 4), ("a", 3)] {
            let mut lease = held(holder);
            assert!(look(&mut a, &mut lease, Instant::now(), 0));
            assert_eq!(lease.unwrap().spec.unwrap().lease_transitions, Some(transitions));
        }
        assert!(!look(&mut a, &mut held("b"), Instant::now(), 0));
    }
}
