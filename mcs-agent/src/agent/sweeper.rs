use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use crate::{dataplane::FlowSweep, flows::FlowUsage};

/// The shortest timeout of a flow is as long.
const INTERVAL: Duration = Duration::from_secs(10);

/// Sweeps the flow table now and then, on a thread of its own: a full one takes longer than others
/// should wait.
pub(super) struct Sweeper {
    sweep: Arc<Mutex<FlowSweep>>,
    running: Option<JoinHandle<io::Result<FlowUsage>>>,
    at: Instant,
}

impl Sweeper {
    /// Sweeps for the first time at once.
    pub(super) fn new(state: &Path) -> io::Result<Self> {
        let sweep = Arc::new(Mutex::new(FlowSweep::open(state)?));
        Ok(Self { sweep, running: None, at: Instant::now() })
    }

    /// Waits for the next sweep and its end. When this is dropped before, the next call goes on.
    pub(super) async fn next(&mut self) -> io::Result<FlowUsage> {
        if self.running.is_none() {
            tokio::time::sleep_until(self.at).await;
        }
        let sweep = &self.sweep;
        let running = self.running.get_or_insert_with(|| {
            let sweep = Arc::clone(sweep);
            tokio::task::spawn_blocking(move || {
                sweep.lock().unwrap_or_else(PoisonError::into_inner).sweep()
            })
        });
        let result = running.await;
        self.running = None;
        self.at = Instant::now() + INTERVAL;
        result.map_err(io::Error::other)?
    }
}
