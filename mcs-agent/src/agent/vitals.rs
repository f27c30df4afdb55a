//! What the control task tells, and those may ask who must not wait for it.

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

/// How often a start that waits for something says that it is alive.
const STARTING_BEAT: Duration = Duration::from_secs(1);
/// No change waits.
const NONE: u64 = u64::MAX;

/// How the agent stands, for every thread. Nothing here is held longer than a copy takes.
pub(super) struct Vitals {
    began: Instant,
    /// The latest sign of life of the control task, as milliseconds since `began`.
    beat: AtomicU64,
    /// When the oldest change came that is not in the maps, likewise; or [`NONE`].
    waiting_since: AtomicU64,
    stopping: AtomicBool,
    report: Mutex<Option<Arc<Report>>>,
    listeners: Mutex<Vec<ListenerReport>>,
    listeners_changed: Notify,
    pub(super) metrics: SyncMetrics,
}

impl Vitals {
    /// Those of an agent that has just begun.
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

    /// The control task is at work.
    pub(super) fn beat(&self) {
        self.beat.store(self.now(), Relaxed);
    }

    /// Says so as long as something is waited for.
    pub(super) async fn beat_during<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        loop {
            self.beat();
            if let Ok(value) = tokio::time::timeout(STARTING_BEAT, &mut wait).await {
                return value;
            }
        }
    }

    /// How long the control task has given no sign of life.
    pub(super) fn silence(&self) -> Duration {
        self.since(self.beat.load(Relaxed))
    }

    /// A change has come that the maps do not hold.
    pub(super) fn changed(&self) {
        // Only the control task writes this.
        if self.waiting_since.load(Relaxed) == NONE {
            self.waiting_since.store(self.now(), Relaxed);
        }
    }

    /// The maps hold all that is wanted.
    pub(super) fn written(&self) {
        self.waiting_since.store(NONE, Relaxed);
    }

    /// How long the oldest change has waited that is not in the maps.
    pub(super) fn oldest_change(&self) -> Option<Duration> {
        let since = self.waiting_since.load(Relaxed);
        (since != NONE).then(|| self.since(since))
    }

    /// The agent was told to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Whether it was.
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

    /// What is served, and where.
    pub(super) fn listeners(&self) -> Vec<ListenerReport> {
        lock(&self.listeners).clone()
    }

    /// Replaces what is said of one listener.
    pub(super) fn set_listener(&self, listener: ListenerReport) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|other| other.flags != listener.flags);
        listeners.push(listener);
        listeners.sort_by(|a, b| a.flags.cmp(&b.flags));
        self.listeners_changed.notify_one();
    }

    /// Waits until [`Vitals::listeners`] has changed.
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
        let vitals = Vitals::new(SyncMetrics::new().unwrap());
        vitals.beat.store(NONE, Relaxed);
        vitals.beat_during(tokio::time::sleep(STARTING_BEAT * 3)).await;
        assert_ne!(vitals.beat.load(Relaxed), NONE);
    }

    #[test]
    fn the_oldest_change_counts() {
        let vitals = Vitals::new(SyncMetrics::new().unwrap());
        assert_eq!(vitals.oldest_change(), None);
        vitals.changed();
        std::thread::sleep(Duration::from_millis(20));
        vitals.changed();
        assert!(vitals.oldest_change() >= Some(Duration::from_millis(20)));
        vitals.written();
        assert_eq!(vitals.oldest_change(), None);
    }
}
