//! What the control task publishes to the HTTP threads, which must not wait for it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::{
    metrics::SyncMetrics,
    report::{ListenerReport, Report},
};

/// How often an agent that waits during its start reports that it is alive.
const STARTING_BEAT: Duration = Duration::from_secs(1);
/// The value if no change waits.
const NONE: u64 = u64::MAX;

/// The state of the agent that every thread may read. No lock is held longer than a copy takes.
pub(super) struct Published {
    began: Instant,
    /// The latest sign of life of the control task, as milliseconds since `began`.
    beat: AtomicU64,
    /// When the oldest change came that the maps do not follow yet, likewise; or [`NONE`].
    waiting_since: AtomicU64,
    stopping: AtomicBool,
    report: Mutex<Option<Arc<Report>>>,
    listeners: Mutex<Vec<ListenerReport>>,
    listeners_changed: Notify,
    pub(super) metrics: SyncMetrics,
}

impl Published {
    /// The state of an agent that has just started.
    pub(super) fn new(metrics: SyncMetrics) -> Self {
        Self {
            began: Instant::now(),
            beat: AtomicU64::new(0),
            waiting_since: AtomicU64::new(NONE),
            stopping: AtomicBool::new(false),
            report: Mutex::new(None),
            listeners: Mutex::new(Vec::new()),
            listeners_changed: Notify::new(),
            metrics,
        }
    }

    /// Records a sign of life of the control task.
    pub(super) fn beat(&self) {
        self.beat.store(self.now(), Relaxed);
    }

    /// Gives signs of life until `wait` is over.
    pub(super) async fn beat_during<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        loop {
            self.beat();
            if let Ok(value) = tokio::time::timeout(STARTING_BEAT, &mut wait).await {
                return value;
            }
        }
    }

    /// The time since the latest sign of life.
    pub(super) fn silence(&self) -> Duration {
        self.since(self.beat.load(Relaxed))
    }

    /// Records a change that the maps do not follow yet.
    pub(super) fn changed(&self) {
        // Only the control task writes this.
        if self.waiting_since.load(Relaxed) == NONE {
            self.waiting_since.store(self.now(), Relaxed);
        }
    }

    /// Records that the maps are as desired.
    pub(super) fn written(&self) {
        self.waiting_since.store(NONE, Relaxed);
    }

    /// How long the oldest change has waited that is not in the maps.
    pub(super) fn oldest_change(&self) -> Option<Duration> {
        let since = self.waiting_since.load(Relaxed);
        (since != NONE).then(|| self.since(since))
    }

    /// Records that the process got a signal to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Whether the process got a signal to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
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

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(NONE - 1)
    }

    fn since(&self, millis: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(millis))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_waits_is_alive() {
        let published = Published::new(SyncMetrics::new().unwrap());
        published.beat.store(NONE, Relaxed);
        published.beat_during(tokio::time::sleep(STARTING_BEAT * 3)).await;
        assert_ne!(published.beat.load(Relaxed), NONE);
    }

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
