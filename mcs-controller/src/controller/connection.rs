//! The connections to mailboxes: watches that run until they are dropped.

use std::sync::Arc;

use mcs_kube::{ApiAccess, Decoder, KubeconfigContent, ResourceEvent, ResourceWatch, WatchTarget};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use super::{MailboxId, Update};
use crate::mailbox::{MailboxEvent, Scope};

/// Watches of mailboxes. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    task: JoinHandle<()>,
    /// The kubeconfig, if it comes from a Secret.
    content: Option<watch::Sender<Arc<str>>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Watches mailboxes of the API server of `access`.
    pub(super) fn with_access(
        access: Arc<ApiAccess>,
        scope: Scope,
        id: MailboxId,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let task =
            tokio::spawn(async move { watch_mailboxes(&access, &scope, &id, &updates).await });
        Self { task, content: None }
    }

    /// Watches mailboxes of peers with a kubeconfig that can be replaced.
    pub(super) fn with_kubeconfig(
        kubeconfig: Arc<str>,
        secret: String,
        scope: Scope,
        id: MailboxId,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let (sender, content) = watch::channel(kubeconfig);
        let task = tokio::spawn(async move {
            let mut changes = content.clone();
            loop {
                changes.mark_unchanged();
                if let Some(access) = open(&secret, &content, &id, &updates).await {
                    let watches = watch_mailboxes(&access, &scope, &id, &updates);
                    // The watches keep the former kubeconfig if a new one is unusable.
                    let judge = async {
                        while changes.changed().await.is_ok() {
                            open(&secret, &content, &id, &updates).await;
                        }
                    };
                    tokio::select! {
                        () = watches => {}
                        () = judge => {}
                    }
                    return;
                }
                if changes.changed().await.is_err() {
                    return;
                }
            }
        });
        Self { task, content: Some(sender) }
    }

    /// Uses this kubeconfig from now on. False if the connection uses none.
    pub(super) fn replace(&self, kubeconfig: &Arc<str>) -> bool {
        self.content.as_ref().is_some_and(|content| {
            replace(content, kubeconfig);
            true
        })
    }
}

/// Opens the API server of a kubeconfig, and reports whether the kubeconfig is usable.
async fn open(
    secret: &str,
    content: &watch::Receiver<Arc<str>>,
    id: &MailboxId,
    updates: &mpsc::Sender<Update>,
) -> Option<ApiAccess> {
    let content = KubeconfigContent { name: format!("Secret {secret}"), content: content.clone() };
    let (access, problem) = match ApiAccess::from_content(content).await {
        Ok((access, _)) => (Some(access), None),
        Err(error) => (None, Some(format!("{:#}", anyhow::Error::new(error)))),
    };
    let _ = updates.send(Update::Access(id.clone(), problem)).await;
    access
}

/// Sends this kubeconfig to the receivers of `content`. Returns whether it is new.
pub(super) fn replace(content: &watch::Sender<Arc<str>>, kubeconfig: &Arc<str>) -> bool {
    content.send_if_modified(|current| {
        let differs = current != kubeconfig;
        if differs {
            current.clone_from(kubeconfig);
        }
        differs
    })
}

/// Sends the events of mailboxes until the receiver is dropped.
async fn watch_mailboxes(
    access: &ApiAccess,
    scope: &Scope,
    id: &MailboxId,
    updates: &mpsc::Sender<Update>,
) {
    let services = watch_one(access, scope.services(), id, updates, MailboxEvent::Services);
    let slices = watch_one(access, scope.slices(), id, updates, MailboxEvent::Slices);
    let leases = watch_one(access, scope.leases(), id, updates, MailboxEvent::Lease);
    tokio::join!(Box::pin(services), Box::pin(slices), Box::pin(leases));
}

async fn watch_one<D: Decoder>(
    access: &ApiAccess,
    target: WatchTarget,
    id: &MailboxId,
    updates: &mpsc::Sender<Update>,
    event: fn(ResourceEvent<D>) -> MailboxEvent,
) {
    let update = |one| Update::Mailbox(id.clone(), event(one));
    ResourceWatch::new(access, target, updates.clone(), update).run().await;
}
