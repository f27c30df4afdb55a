//! One pass over the flow table: it removes the flows that are over and counts the others.

use std::{collections::BTreeSet, io, net::IpAddr, path::Path, time::Instant};

use mcs_common::{FlowsUsed, maps};

use super::{
    Connects, EvictionRecord, FlowGate, FlowRecords, FlowScan, FlowTable, FlowUsage, monotonic_ns,
};

/// Removes the flows that are over.
#[derive(Debug)]
pub struct FlowSweep {
    table: FlowTable,
    gate: FlowGate,
    evictions: EvictionRecord,
    forgotten: u64,
    vips: BTreeSet<IpAddr>,
    is_watched: bool,
    /// What flows said of their backends at the latest sweep, if it was watched.
    connects: Option<Connects>,
}

impl FlowSweep {
    /// Opens the maps in the state directory. If there are flows, the programs look packets up from now on.
    pub fn open(state: &Path) -> io::Result<Self> {
        let table = FlowTable::open(&state.join(maps::FLOWS))?;
        let mut gate = FlowGate::open(state)?;
        if !table.is_empty()? {
            gate.used()?;
        }
        let evictions = EvictionRecord::open(state)?;
        let (vips, connects) = (BTreeSet::new(), None);
        Ok(Self { table, gate, evictions, forgotten: 0, vips, is_watched: false, connects })
    }

    /// Removes the flows that are over now, and counts the others.
    pub fn sweep(&mut self) -> io::Result<FlowUsage> {
        self.sweep_at(monotonic_ns())
    }

    /// Takes the VIPs that flows used at the latest sweep.
    pub fn take_vips(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.vips)
    }

    /// Whether sweeps are to find out what flows say of their backends.
    pub const fn set_watched(&mut self, is_watched: bool) {
        self.is_watched = is_watched;
    }

    /// What flows said of their backends at the latest sweep.
    pub fn records(&self) -> FlowRecords {
        self.connects.as_ref().map(|connects| connects.records().clone()).unwrap_or_default()
    }

    /// As [`FlowSweep::sweep`], at this instant of `CLOCK_MONOTONIC`.
    pub fn sweep_at(&mut self, now_ns: u64) -> io::Result<FlowUsage> {
        let start = Instant::now();
        let before = self.evictions.get().entries;
        let mut scan = FlowScan::new(now_ns);
        let connects = self.connects.take().map_or_else(Connects::default, Connects::next);
        if self.is_watched {
            scan = scan.with_connects(connects);
        }
        if self.gate.get() != FlowsUsed::NO {
            self.table.for_each(|entry| scan.add(entry))?;
        }
        let mut totals = scan.finish();
        self.vips = std::mem::take(&mut totals.vips);
        self.connects = totals.connects.take();
        for flow in &totals.due {
            let removed = self.table.forget(flow, now_ns)?;
            totals.entries = totals.entries.saturating_sub(removed);
            self.forgotten += u64::from(removed > 0);
        }
        self.evictions.counted(totals.entries as u64, before)?;
        if totals.entries == 0 && self.gate.get() != FlowsUsed::NO {
            self.gate.end(|| self.table.is_empty())?;
        }
        let capacity = self.table.capacity();
        Ok(FlowUsage {
            max: capacity.0,
            entries: totals.entries,
            max_entries: capacity.entries(),
            halves: totals.halves,
            states: std::mem::take(&mut totals.states),
            forgotten: self.forgotten,
            sweep_micros: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        })
    }
}
