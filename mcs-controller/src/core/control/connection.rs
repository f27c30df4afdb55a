//! The connections to mailboxes: watches that run until they are dropped. Each has few events waiting at the control task, so
//! that one peer does not take its rounds.

use std::sync::Arc;

use mcs_kube::{ApiAccess, Decoder, KubeconfigContent, ResourceEvent, ResourceWatch, WatchTarget};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinHandle,
};

use super::{MailboxId, Update};
use crate::core::mailbox::{MailboxEvent, Scope};

/// The most events of a connection that wait at the control task. Others wait behind them.
const SHARE: usize = 64;

/// Watches of mailboxes. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    task: JoinHandle<()>,
    /// The kubeconfig, if it comes from a Secret.
    content: Option<watch::Sender<Arc<str>>>,
    /// How many more events may wait.
    share: Arc<Semaphore>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
        self.share.close();
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
        let (sender, share) = shared(updates);
        let task =
            tokio::spawn(async move { watch_mailboxes(&access, &scope, &id, &sender).await });
        Self { task, content: None, share }
    }

    /// Watches mailboxes of peers with a kubeconfig that can be replaced.
    pub(super) fn with_kubeconfig(
        kubeconfig: Arc<str>,
        secret: String,
        scope: Scope,
        id: MailboxId,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let (updates, share) = shared(updates);
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
                        biased;
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
        Self { task, content: Some(sender), share }
    }

    /// The control task has taken one of its events.
    pub(super) fn note_taken(&self) {
        // An event of a former connection may be counted.
        if self.share.available_permits() < SHARE {
            self.share.add_permits(1);
        }
    }

    /// Uses this kubeconfig from now on. False if the connection uses none.
    pub(super) fn replace(&self, kubeconfig: &Arc<str>) -> bool {
        self.content.as_ref().is_some_and(|content| {
            replace(content, kubeconfig);
            true
        })
    }
}

/// A sender of updates of which few wait at a time, and its share.
fn shared(updates: mpsc::Sender<Update>) -> (mpsc::Sender<Update>, Arc<Semaphore>) {
    let (sender, mut receiver) = mpsc::channel(1);
    let share = Arc::new(Semaphore::new(SHARE));
    let left = Arc::clone(&share);
    tokio::spawn(async move {
        // It ends with the connection, which has the sender.
        while let Some(update) = receiver.recv().await {
            let Ok(permit) = left.acquire().await else { return };
            permit.forget();
            if updates.send(update).await.is_err() {
                return;
            }
        }
    });
    (sender, share)
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
