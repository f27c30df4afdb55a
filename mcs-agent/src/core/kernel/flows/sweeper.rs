//! The regular sweep of the flow table.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use super::{FlowBounds, FlowPins, FlowSweep, SweepResult, monotonic_ns};

/// As long as the shortest timeout of a flow.
const INTERVAL: Duration = Duration::from_secs(10);
/// The same while somebody asks what flows say of backends, or while frontends are bounded. After a sweep the sweeper rests for [`RESTS`] times as long as
/// the sweep took, but not longer than [`INTERVAL`].
const INTERVAL_WATCHED: Duration = Duration::from_secs(1);
const RESTS: u32 = 50;

/// Sweeps the flow table every ten seconds, or more often while it is watched, on a thread of its own: a sweep of a full
/// table takes longer than the control task may wait.
pub struct FlowSweeper {
    sweep: Arc<Mutex<FlowSweep>>,
    running: Option<JoinHandle<io::Result<SweepResult>>>,
    at: Instant,
    is_watched: bool,
    bounds: Arc<FlowBounds>,
}

impl FlowSweeper {
    /// Opens the pinned maps. The first sweep begins at once.
    pub fn new(pins: &FlowPins) -> io::Result<Self> {
        let sweep = Arc::new(Mutex::new(FlowSweep::open(pins)?));
        Ok(Self {
            sweep,
            running: None,
            at: Instant::now(),
            is_watched: false,
            bounds: Arc::default(),
        })
    }

    /// Whether somebody asks what flows say of backends.
    pub fn set_watched(&mut self, is_watched: bool) {
        if is_watched && !self.is_watched {
            self.at = self.at.min(Instant::now() + INTERVAL_WATCHED);
        }
        self.is_watched = is_watched;
    }

    /// Sets whose flows end where their backend does not serve.
    pub fn set_bounds(&mut self, bounds: FlowBounds) {
        if *self.bounds != bounds {
            self.bounds = bounds.into();
            self.at = Instant::now();
        }
    }

    /// Waits for the end of the next sweep. If the future is dropped before, the next call waits for the same sweep.
    pub async fn next(&mut self) -> io::Result<SweepResult> {
        if self.running.is_none() {
            tokio::time::sleep_until(self.at).await;
        }
        let (sweep, is_watched, bounds) = (&self.sweep, self.is_watched, &self.bounds);
        let running = self.running.get_or_insert_with(|| {
            let (sweep, bounds) = (Arc::clone(sweep), Arc::clone(bounds));
            tokio::task::spawn_blocking(move || {
                let mut sweep = sweep.lock().unwrap_or_else(PoisonError::into_inner);
                sweep.bounds = bounds;
                sweep.sweep(monotonic_ns(), is_watched)
            })
        });
        let ended = running.await;
        self.running = None;
        let result = ended.map_err(io::Error::other).flatten();
        let took = result.as_ref().map(|result| result.began.elapsed()).unwrap_or_default();
        let is_watched = self.is_watched || !self.bounds.is_empty();
        let rest = if is_watched { INTERVAL_WATCHED.max(took * RESTS) } else { INTERVAL };
        self.at = Instant::now() + rest.min(INTERVAL);
        result
    }
}
