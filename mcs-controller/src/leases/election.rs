//! The election of the replica that writes. The others read everything too, so that they can take over at once.

use std::{sync::Arc, time::Duration};

use kube_lease_manager::LeaseManagerBuilder;
use mcs_kube::ApiAccess;
use tokio::{sync::watch, task::JoinHandle, time::sleep};

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
    task: Option<JoinHandle<()>>,
}

impl Drop for Election {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Election {
    /// Takes part under the name of this replica. Without a name, this replica always leads.
    pub fn start(settings: &Settings, access: Arc<ApiAccess>) -> Self {
        let Some(identity) = settings.identity.clone() else {
            let (sender, leads) = watch::channel(true);
            let task = tokio::spawn(async move { sender.closed().await });
            return Self { leads, task: Some(task) };
        };
        let (sender, leads) = watch::channel(false);
        let namespace = settings.namespace.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = take_part(&access, &identity, &namespace, &sender).await {
                    tracing::warn!("cannot take part in the election of a leader: {error:#}");
                }
                sender.send_replace(false);
                sleep(RETRY).await;
            }
        });
        Self { leads, task: Some(task) }
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
) -> anyhow::Result<()> {
    let client = access.connection().await?.client;
    let manager = LeaseManagerBuilder::new(client, LEASE)
        .with_namespace(namespace)
        .with_identity(identity)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await?;
    let (mut changes, task) = manager.watch().await;
    loop {
        leads.send_replace(*changes.borrow_and_update());
        if changes.changed().await.is_err() {
            break;
        }
    }
    task.await??;
    Ok(())
}
