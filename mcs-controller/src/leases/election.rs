//! The election of the replica that writes. The others read everything too, so that they can take over at once.

use std::{sync::Arc, time::Duration};

use kube_lease_manager::LeaseManagerBuilder;
use mcs_kube::ApiAccess;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::controller::Settings;

/// The Lease that the leader holds, in the controller's namespace.
const LEASE: &str = "mcs-controller";
/// How long the leader may be silent before another replica takes over, in seconds.
const DURATION: u64 = 15;
/// How long before that it renews the Lease, in seconds.
const GRACE: u64 = 10;
const RETRY: Duration = Duration::from_secs(2);

/// Takes part in the election until it is dropped.
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
    /// Takes part under the name of this replica. Without a name, this replica always leads.
    pub fn start(settings: &Settings, access: Arc<ApiAccess>) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let Some(identity) = settings.identity.clone() else {
            let (sender, leads) = watch::channel(true);
            let task = tokio::spawn(async move {
                // The channel has to stay open.
                let _ = stopped.wait_for(|stopped| *stopped).await;
                drop(sender);
            });
            return Self { leads, stop, task };
        };
        let (sender, leads) = watch::channel(false);
        let namespace = settings.namespace.clone();
        let task = tokio::spawn(async move {
            while !*stopped.borrow() {
                let part = take_part(&access, &identity, &namespace, &sender, &mut stopped);
                if let Err(error) = part.await {
                    tracing::warn!("cannot take part in the election of a leader: {error:#}");
                }
                sender.send_replace(false);
                let _ = timeout(RETRY, stopped.wait_for(|stopped| *stopped)).await;
            }
        });
        Self { leads, stop, task }
    }

    /// Gives the Lease away, if this replica has it.
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
    loop {
        leads.send_replace(*is_leader.borrow_and_update());
        tokio::select! {
            changed = is_leader.changed() => if changed.is_err() { break },
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    // Without a receiver, the manager gives the Lease away and ends.
    drop(is_leader);
    task.await??;
    Ok(())
}
