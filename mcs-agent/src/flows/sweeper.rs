//! The regular sweep of the flow table.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use super::{FlowSweep, FlowUsage};

/// As long as the shortest timeout of a flow.
const INTERVAL: Duration = Duration::from_secs(10);

/// What a sweep found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swept {
    /// How full the table is.
    pub usage: FlowUsage,
    /// The VIPs that flows use.
    pub vips: BTreeSet<IpAddr>,
    /// When the sweep began.
    pub began: std::time::Instant,
}

/// Sweeps the flow table every ten seconds, on a thread of its own: a sweep of a full table takes longer than
/// the control task may wait.
pub struct FlowSweeper {
    sweep: Arc<Mutex<FlowSweep>>,
    running: Option<JoinHandle<io::Result<Swept>>>,
    at: Instant,
}

impl FlowSweeper {
    /// Opens the maps in the state directory. The first sweep begins at once.
    pub fn new(state: &Path) -> io::Result<Self> {
        let sweep = Arc::new(Mutex::new(FlowSweep::open(state)?));
        Ok(Self { sweep, running: None, at: Instant::now() })
    }

    /// Waits for the end of the next sweep. If the future is dropped before, the next call waits for the same sweep.
    pub async fn next(&mut self) -> io::Result<Swept> {
        if self.running.is_none() {
            tokio::time::sleep_until(self.at).await;
        }
        let sweep = &self.sweep;
        let running = self.running.get_or_insert_with(|| {
            let sweep = Arc::clone(sweep);
            tokio::task::spawn_blocking(move || {
                let mut sweep = sweep.lock().unwrap_or_else(PoisonError::into_inner);
                let began = std::time::Instant::now();
                let usage = sweep.sweep()?;
                Ok(Swept { usage, vips: sweep.take_vips(), began })
            })
        });
        let result = running.await;
        self.running = None;
        self.at = Instant::now() + INTERVAL;
        result.map_err(io::Error::other)?
    }
}
