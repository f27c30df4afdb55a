//! Signs of life of a control task, for threads that must not wait for it.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How often a task that waits during its start gives a sign of life.
const STARTING_BEAT: Duration = Duration::from_secs(1);

/// Whether the control task runs, and whether the process got a signal to end.
#[derive(Debug)]
pub struct Heartbeat {
    began: Instant,
    /// The latest sign of life, by [`Heartbeat::now`].
    beat: AtomicU64,
    stopping: AtomicBool,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { began: Instant::now(), beat: AtomicU64::new(0), stopping: AtomicBool::new(false) }
    }
}

impl Heartbeat {
    /// Records a sign of life.
    pub fn beat(&self) {
        self.beat.store(self.now(), Relaxed);
    }

    /// Gives signs of life until `wait` is over.
    pub async fn beat_during<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        loop {
            self.beat();
            if let Ok(value) = tokio::time::timeout(STARTING_BEAT, &mut wait).await {
                return value;
            }
        }
    }

    /// The time since the latest sign of life.
    pub fn silence(&self) -> Duration {
        self.since(self.beat.load(Relaxed))
    }

    /// Records that the process got a signal to end.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Whether the process got a signal to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Milliseconds since the start.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// The time since a moment of [`Heartbeat::now`].
    pub fn since(&self, moment: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_waits_is_alive() {
        let life = Heartbeat::default();
        life.beat.store(u64::MAX, Relaxed);
        life.beat_during(tokio::time::sleep(STARTING_BEAT * 3)).await;
        assert_ne!(life.beat.load(Relaxed), u64::MAX);
    }
}
