//! What the control task publishes to the HTTP threads, which must not wait for it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use mcs_kube::program::{Heartbeat, http::ListenerReport};
use tokio::sync::Notify;

use super::{
    metrics::{Families, SyncMetrics},
    report::Report,
};
use crate::core::model::FailedConnects;

/// The value if no change waits.
const NONE: u64 = u64::MAX;

/// Metrics of a feature that are not in the report. Threads call it; the control task does not wait for it.
pub(crate) trait Collect: Send + Sync {
    /// Adds them.
    fn collect(&self, report: &Report, to: &mut Families) -> prometheus::Result<()>;

    /// Takes connects that another feature has seen fail.
    fn note_failed(&self, _: &[FailedConnects]) {}
}

/// The state of the agent that every thread may read. No lock is held longer than a copy takes.
pub(crate) struct Published {
    /// Of the control task.
    pub(crate) life: Heartbeat,
    /// Of the main thread, which follows the source.
    pub(super) main_life: Heartbeat,
    /// When the oldest change came that the maps do not follow yet, by [`Heartbeat::now`]; or [`NONE`].
    waiting_since: AtomicU64,
    report: Mutex<Option<Arc<Report>>>,
    listeners: Mutex<Vec<ListenerReport>>,
    listeners_changed: Notify,
    pub(super) metrics: SyncMetrics,
    /// Of features; none before the agent has its maps.
    collectors: Mutex<Vec<Arc<dyn Collect>>>,
}

impl Published {
    /// The state of an agent that has just started.
    pub(super) fn new(metrics: SyncMetrics) -> Self {
        Self {
            life: Heartbeat::default(),
            main_life: Heartbeat::default(),
            waiting_since: AtomicU64::new(NONE),
            report: Mutex::new(None),
            listeners: Mutex::new(Vec::new()),
            listeners_changed: Notify::new(),
            metrics,
            collectors: Mutex::default(),
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

    /// How long one of the two threads that changes need has given no sign of life.
    pub(super) fn silence(&self) -> Duration {
        self.life.silence().max(self.main_life.silence())
    }

    /// Makes a report the latest one.
    pub(super) fn publish(&self, report: Arc<Report>) {
        *lock(&self.report) = Some(report);
    }

    /// The latest report; none before the agent has its maps.
    pub(super) fn report(&self) -> Option<Arc<Report>> {
        lock(&self.report).clone()
    }

    /// A feature has metrics that are not in the report.
    pub(crate) fn add_collector(&self, collector: Arc<dyn Collect>) {
        lock(&self.collectors).push(collector);
    }

    /// Adds the metrics of all collectors.
    pub(super) fn collect(&self, report: &Report, to: &mut Families) -> prometheus::Result<()> {
        let collectors = lock(&self.collectors).clone();
        collectors.iter().try_for_each(|one| one.collect(report, to))
    }

    /// A feature has seen connects fail.
    pub(crate) fn note_failed(&self, failed: &[FailedConnects]) {
        lock(&self.collectors).iter().for_each(|one| one.note_failed(failed));
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
