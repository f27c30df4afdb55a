//! What the control task publishes to the HTTP threads, which must not wait for it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use mcs_kube::program::{Heartbeat, http::ListenerReport};
use tokio::sync::Notify;

use super::{figures::ImportFigures, metrics::SyncMetrics, report::Report};

/// The value if no change waits.
const NONE: u64 = u64::MAX;

/// The state of the agent that every thread may read. No lock is held longer than a copy takes.
pub(super) struct Published {
    pub(super) life: Heartbeat,
    /// When the oldest change came that the maps do not follow yet, by [`Heartbeat::now`]; or [`NONE`].
    waiting_since: AtomicU64,
    report: Mutex<Option<Arc<Report>>>,
    listeners: Mutex<Vec<ListenerReport>>,
    listeners_changed: Notify,
    pub(super) metrics: SyncMetrics,
    /// Unset before the agent has its maps, and with `--metrics-imports=0`.
    pub(super) figures: OnceLock<ImportFigures>,
}

impl Published {
    /// The state of an agent that has just started.
    pub(super) fn new(metrics: SyncMetrics) -> Self {
        Self {
            life: Heartbeat::default(),
            waiting_since: AtomicU64::new(NONE),
            report: Mutex::new(None),
            listeners: Mutex::new(Vec::new()),
            listeners_changed: Notify::new(),
            metrics,
            figures: OnceLock::new(),
        }
    }

    /// Records a change that the maps do not follow yet.
    pub(super) fn changed(&self) {
        // Only the control task writes this.
        if self.waiting_since.load(Relaxed) == NONE {
            self.waiting_since.store(self.life.now(), Relaxed);
        }
    }

    /// Records that the maps are as desired.
    pub(super) fn written(&self) {
        self.waiting_since.store(NONE, Relaxed);
    }

    /// How long the oldest change has waited that is not in the maps.
    pub(super) fn oldest_change(&self) -> Option<Duration> {
        let since = self.waiting_since.load(Relaxed);
        (since != NONE).then(|| self.life.since(since))
    }

    /// Makes a report the latest one.
    pub(super) fn publish(&self, report: Arc<Report>) {
        *lock(&self.report) = Some(report);
    }

    /// The latest report; none before the agent has its maps.
    pub(super) fn report(&self) -> Option<Arc<Report>> {
        lock(&self.report).clone()
    }

    /// The state of each listener.
    pub(super) fn listeners(&self) -> Vec<ListenerReport> {
        lock(&self.listeners).clone()
    }

    /// Replaces the state of one listener.
    pub(super) fn set_listener(&self, listener: ListenerReport) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|other| other.flags != listener.flags);
        listeners.push(listener);
        listeners.sort_by(|a, b| a.flags.cmp(&b.flags));
        self.listeners_changed.notify_one();
    }

    /// Waits until [`Published::listeners`] has changed.
    pub(super) async fn listeners_changed(&self) {
        self.listeners_changed.notified().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_change_counts() {
        let published = Published::new(SyncMetrics::new().unwrap());
        assert_eq!(published.oldest_change(), None);
        published.changed();
        std::thread::sleep(Duration::from_millis(20));
        published.changed();
        assert!(published.oldest_change() >= Some(Duration::from_millis(20)));
        published.written();
        assert_eq!(published.oldest_change(), None);
    }
}
