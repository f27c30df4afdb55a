//! The regular pass over the flow table: it removes the flows that are over and counts the others, for the report too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use mcs_common::FlowsUsed;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::{
    Connects, EvictionRecord, FlowBounds, FlowPair, FlowPins, FlowRecords, FlowScan, FlowTable,
    FlowsUsedFlag, ScanTotals, monotonic_ns,
};

/// Removes the flows that are over.
#[derive(Debug)]
pub struct FlowSweep {
    table: FlowTable,
    used: FlowsUsedFlag,
    evictions: EvictionRecord,
    forgotten: u64,
    /// Flows that they exclude are over.
    pub(super) bounds: Arc<FlowBounds>,
    /// What flows said of their backends at the latest sweep, if somebody asked.
    connects: Option<Connects>,
}

/// The result of a sweep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweepResult {
    /// How full the table is.
    pub usage: FlowUsage,
    /// The VIPs that flows use.
    pub vips: BTreeSet<IpAddr>,
    /// What flows say of their backends, if somebody asks.
    pub records: FlowRecords,
    /// When the sweep began.
    pub began: Instant,
}

impl FlowSweep {
    /// Opens the pinned maps. If there are flows, the programs look packets up from now on.
    pub fn open(pins: &FlowPins) -> io::Result<Self> {
        let table = FlowTable::open(&pins.table)?;
        let mut used = FlowsUsedFlag::open(pins)?;
        if !table.is_empty()? {
            used.used()?;
        }
        let evictions = EvictionRecord::open(pins)?;
        let bounds = Arc::default();
        Ok(Self { table, used, evictions, forgotten: 0, bounds, connects: None })
    }

    /// Removes the flows that are over at this instant of `CLOCK_MONOTONIC`, and counts the others. `is_watched`: somebody
    /// asks what flows say of their backends.
    pub fn sweep(&mut self, now_ns: u64, is_watched: bool) -> io::Result<SweepResult> {
        let began = Instant::now();
        let before = self.evictions.get().entries;
        let connects = self.connects.take().map_or_else(Connects::default, Connects::next);
        let bounds = Arc::clone(&self.bounds);
        let mut scan = FlowScan::new(now_ns, bounds, is_watched.then_some(connects));
        if self.used.get() != FlowsUsed::NO {
            self.table.for_each(|entry| scan.add(entry))?;
        }
        let ScanTotals { mut usage, vips, due, connects } = scan.finish();
        let records = connects.as_ref().map(|one| one.records().clone()).unwrap_or_default();
        self.connects = connects;
        for flow in &due {
            let is_over = |flow: &FlowPair| flow.is_due(now_ns) || self.bounds.exclude(flow);
            let removed = self.table.forget(flow, is_over)?;
            usage.entries = usage.entries.saturating_sub(removed);
            self.forgotten += u64::from(removed > 0);
        }
        self.evictions.counted(usage.entries as u64, before)?;
        if usage.entries == 0 && self.used.get() != FlowsUsed::NO {
            self.used.end(|| self.table.is_empty())?;
        }
        let capacity = self.table.capacity();
        (usage.max, usage.max_entries) = (capacity.0, capacity.entries());
        usage.forgotten = self.forgotten;
        usage.sweep_micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(SweepResult { usage, vips, records, began })
    }
}

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
            tokio::time::sleep_until(self.at.into()).await;
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

/// The flow table after the latest sweep. Part of `status -o json`: fields are added,
/// never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlowUsage {
    /// Flows for which there is room.
    pub max: u32,
    /// Entries in the table.
    pub entries: usize,
    /// Entries for which there is room.
    pub max_entries: u32,
    /// Flows with one of their two entries: the kernel evicted the other one, since the table is full.
    pub halves: usize,
    /// Flows by protocol and by state.
    pub states: BTreeMap<String, BTreeMap<String, usize>>,
    /// Flows that had no packet for as long as their state allows, since the agent started.
    pub forgotten: u64,
    /// Microseconds that the sweep took.
    pub sweep_micros: u64,
}

impl FlowUsage {
    /// Flows in the table.
    pub fn flows(&self) -> usize {
        self.states.values().flat_map(BTreeMap::values).sum()
    }
}

impl fmt::Display for FlowUsage {
    /// `3 of 65536 (TCP: 2 established; UDP: 1 replied), 7 forgotten`, and how many have lost an
    /// entry if there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.flows(), self.max)?;
        let states = |states: &BTreeMap<String, usize>| {
            let states: Vec<_> =
                states.iter().map(|(state, count)| format!("{count} {state}")).collect();
            states.join(", ")
        };
        let protocols: Vec<_> = self
            .states
            .iter()
            .map(|(protocol, counts)| format!("{protocol}: {}", states(counts)))
            .collect();
        if !protocols.is_empty() {
            write!(f, " ({})", protocols.join("; "))?;
        }
        write!(f, ", {} forgotten", self.forgotten)?;
        if self.halves > 0 {
            write!(f, ", {} lost an entry", self.halves)?;
        }
        Ok(())
    }
}
