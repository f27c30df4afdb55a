//! One pass over the flow table: it removes the flows that are over and counts the others.

use std::{collections::BTreeSet, io, net::IpAddr, sync::Arc, time::Instant};

use mcs_common::FlowsUsed;

use super::{
    Connects, EvictionRecord, FlowBounds, FlowPair, FlowPins, FlowRecords, FlowScan, FlowTable,
    FlowUsage, FlowsUsedFlag, ScanTotals,
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
