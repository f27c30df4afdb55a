use std::{io, path::Path, time::Instant};

use mcs_common::{FlowsUsed, maps};

use super::{FlowTable, clock::monotonic_ns, flow_gate::FlowGate};
use crate::flows::{FlowUsage, Surveyor};

/// Forgets the flows that are over.
#[derive(Debug)]
pub struct FlowSweep {
    table: FlowTable,
    gate: FlowGate,
    forgotten: u64,
}

impl FlowSweep {
    /// Opens the maps in the state directory, and makes sure that the flows which are there are
    /// looked for.
    pub fn open(state: &Path) -> io::Result<Self> {
        let table = FlowTable::open(&state.join(maps::FLOWS))?;
        let mut gate = FlowGate::open(state)?;
        if !table.is_empty()? {
            gate.used()?;
        }
        Ok(Self { table, gate, forgotten: 0 })
    }

    /// Forgets the flows that are over by now, and counts the others.
    pub fn sweep(&mut self) -> io::Result<FlowUsage> {
        self.sweep_at(monotonic_ns())
    }

    /// As [`FlowSweep::sweep`], at this instant of `CLOCK_MONOTONIC`.
    pub fn sweep_at(&mut self, now_ns: u64) -> io::Result<FlowUsage> {
        let start = Instant::now();
        let mut surveyor = Surveyor::new(now_ns);
        if self.gate.get() != FlowsUsed::NO {
            self.table.for_each(|entry| surveyor.add(entry))?;
        }
        let mut survey = surveyor.finish();
        for flow in &survey.due {
            let removed = self.table.forget(flow, now_ns)?;
            survey.entries = survey.entries.saturating_sub(removed);
            self.forgotten += u64::from(removed > 0);
        }
        if survey.entries == 0 && self.gate.get() != FlowsUsed::NO {
            self.gate.end(|| self.table.is_empty())?;
        }
        let capacity = self.table.capacity();
        Ok(FlowUsage {
            max: capacity.0,
            entries: survey.entries,
            max_entries: capacity.entries(),
            halves: survey.halves,
            states: std::mem::take(&mut survey.states),
            forgotten: self.forgotten,
            sweep_micros: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        })
    }
}
