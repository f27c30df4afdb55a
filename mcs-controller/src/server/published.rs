//! What the control task tells the HTTP server.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::Metrics;

/// How long the control task may be silent. It looks at its clock every second.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the control task tells the HTTP server.
#[derive(Debug)]
pub struct Published {
    begin: Instant,
    /// Milliseconds from `begin` to the latest beat.
    beat: AtomicU64,
    synced: AtomicBool,
    stopping: AtomicBool,
    /// The metrics.
    pub metrics: Metrics,
}

impl Published {
    /// The state at the start.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            begin: Instant::now(),
            beat: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            metrics: Metrics::new()?,
        })
    }

    /// The control task runs.
    pub fn beat(&self) {
        let elapsed = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(elapsed, Ordering::Relaxed);
    }

    /// Everything of this cluster was read.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Relaxed);
    }

    /// The controller ends.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Why the process has to be started again.
    pub fn stuck(&self) -> Option<String> {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        let silence = self.begin.elapsed().saturating_sub(beat);
        (silence > PATIENCE)
            .then(|| format!("the control task has been stuck for {} s", silence.as_secs()))
    }

    /// Why the replica could not take over. Outages of API servers do not count: they would make all replicas unready.
    pub fn not_ready(&self) -> Option<String> {
        if self.stopping.load(Ordering::Relaxed) {
            return Some("the controller ends".to_owned());
        }
        (!self.synced.load(Ordering::Relaxed))
            .then(|| "not everything of this cluster was read yet: see the log".to_owned())
    }
}
