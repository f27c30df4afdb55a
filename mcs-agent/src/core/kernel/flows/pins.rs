//! Where the flow table is pinned.

use std::path::{Path, PathBuf};

use mcs_common::maps;

/// Where the flow table of some programs is pinned, with what belongs to it.
#[derive(Clone, Debug)]
pub struct FlowPins {
    /// The table.
    pub table: PathBuf,
    /// The map `flows_used`.
    pub used: PathBuf,
    /// The map `flow_evictions`.
    pub evictions: PathBuf,
    /// Other tables. Programs that an earlier agent attached write one or more of them.
    pub former: Vec<PathBuf>,
}

impl FlowPins {
    /// Those in the state directory, and no other table.
    pub fn in_state(state: &Path) -> Self {
        let pin = |name| state.join(name);
        Self {
            table: pin(maps::FLOWS),
            used: pin(maps::FLOWS_USED),
            evictions: pin(maps::FLOW_EVICTIONS),
            former: Vec::new(),
        }
    }
}
