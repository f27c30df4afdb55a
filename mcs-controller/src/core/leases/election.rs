//! The election of the replica that writes. The others read everything too, so that they can take over at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube_lease_manager::LeaseManagerBuilder;
use mcs_kube::{ApiAccess, told};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::core::clock;

/// The Lease that the leader holds, in the controller's namespace.
const LEASE: &str = "mcs-controller";
/// How long the leader may be silent before another replica takes over, in seconds.
const DURATION: u64 = 15;
/// How long before that it renews the Lease, in seconds.
const GRACE: u64 = 10;
/// How often the leader looks whether it holds the Lease.
const POLL: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(2);

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
        let Some(identity) = identity else {
            let (sender, leads) = watch::channel(true);
            let task = tokio::spawn(async move {
                // The channel has to stay open.
                let _ = stopped.wait_for(|stopped| *stopped).await;
                drop(sender);
            });
            return Self { leads, stop, task };
        };
        let (sender, leads) = watch::channel(false);
        let namespace = namespace.to_owned();
        let task = tokio::spawn(async move {
            while !*stopped.borrow() {
                let part = take_part(&access, &identity, &namespace, &sender, &mut stopped);
                if let Err(error) = part.await {
                    let error = told(&error);
                    tracing::warn!("cannot take part in the election of a leader: {error}");
                }
                sender.send_replace(false);
                let _ = timeout(RETRY, stopped.wait_for(|stopped| *stopped)).await;
            }
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

async fn take_part(
    access: &ApiAccess,
    identity: &str,
    namespace: &str,
    leads: &watch::Sender<bool>,
    stopped: &mut watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let client = access.connection().await?.client;
    let manager = LeaseManagerBuilder::new(client, LEASE)
        .with_namespace(namespace)
        .with_identity(identity)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await?;
    let (mut is_leader, task) = manager.watch().await;
    let mut until: Option<Instant> = None;
    let mut leading = false;
    loop {
        let holds = *is_leader.borrow_and_update();
        let limit = patience(until.filter(|_| leading), clock::now());
        if holds && let Some(read) = look(access, namespace, identity, limit).await {
            until = read;
        }
        leading = holds && until.is_some_and(|until| clock::now() < until);
        leads.send_if_modified(|leads| std::mem::replace(leads, leading) != leading);
        if holds && !leading && until.is_some() {
            // It tries again with a new connection.
            task.abort();
            bail!("the Lease {namespace}/{LEASE} could not be read for {DURATION} s");
        }
        tokio::select! {
            changed = is_leader.changed() => if changed.is_err() { break },
            () = sleep(patience(until.filter(|_| leading), clock::now())) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    // Without a receiver, the manager releases the Lease and ends.
    drop(is_leader);
    task.await??;
    Ok(())
}

/// How long to wait for an answer, or until the next look. A leader does not wait beyond the end of its Lease.
fn patience(leads_until: Option<Instant>, now: Instant) -> Duration {
    leads_until.map_or(POLL, |until| POLL.min(until.saturating_duration_since(now)))
}

/// Until when this replica holds the Lease. `None`: it cannot be read within `limit`.
///
/// The manager does not say when it cannot renew the Lease, and another replica takes it over then.
async fn look(
    access: &ApiAccess,
    namespace: &str,
    identity: &str,
    limit: Duration,
) -> Option<Option<Instant>> {
    let now = clock::now();
    let read = async {
        let leases: Api<Lease> = Api::namespaced(access.connection().await.ok()?.client, namespace);
        leases.get(LEASE).await.ok()
    };
    let lease = timeout(limit, read).await.ok()??;
    let remaining = remaining(&lease, identity, clock::time_of_day());
    Some(remaining.map(|remaining| now + remaining))
}

/// How long this replica still holds the Lease.
fn remaining(lease: &Lease, identity: &str, now: Timestamp) -> Option<Duration> {
    let spec = lease.spec.as_ref()?;
    let renewed =
        spec.renew_time.as_ref().filter(|_| spec.holder_identity.as_deref() == Some(identity))?;
    // A clock that is set back must not prolong the time.
    let age = Duration::try_from(now.duration_since(renewed.0)).unwrap_or_default();
    Duration::from_secs(DURATION).checked_sub(age).filter(|remaining| !remaining.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_leader_waits_for_nothing_beyond_its_lease() {
        let now = Instant::now();
        assert_eq!(patience(None, now), POLL);
        assert_eq!(patience(Some(now + 3 * POLL), now), POLL);
        assert_eq!(patience(Some(now + POLL / 4), now), POLL / 4);
        assert_eq!(patience(Some(now), now), Duration::ZERO);
    }

    #[test]
    fn a_lease_that_was_not_renewed_is_over() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lease = |holder: &str| {
            let spec =
                json!({"holderIdentity": holder, "renewTime": "1970-01-01T00:01:40.000000Z"});
            from_value::<Lease>(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let seconds =
            |holder, now| remaining(&lease(holder), "a", at(now)).map(|one| one.as_secs());
        assert_eq!(seconds("a", 100), Some(15));
        assert_eq!(seconds("a", 114), Some(1));
        assert_eq!(seconds("a", 115), None);
        assert_eq!(seconds("a", 90), Some(15));
        assert_eq!(seconds("b", 100), None);
    }
}
