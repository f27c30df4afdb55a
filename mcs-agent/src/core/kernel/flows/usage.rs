//! The flow table in the status report.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

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
