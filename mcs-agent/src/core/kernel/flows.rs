//! The flows of the packet path, as user space sees them: the flow table, a flow as its two entries, and the sweep that
//! removes flows that are over.
//!
//! The agent sweeps only the flow table. In the other maps that the programs fill (fragments, affinity), the programs
//! ignore entries that are too old, and the kernel evicts the least recently used entry.

mod connects;
mod evictions;
mod pair;
#[cfg(test)]
mod properties;
mod scan;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

pub use connects::{Connects, FlowRecords, is_device};
pub use evictions::{EvictionRecord, FlowMigration};
pub use pair::{Connect, FlowEntry, FlowPair, Pairing};
pub use scan::{FlowScan, FlowsUsedFlag, ScanTotals};
pub use sweep::{FlowSweep, FlowSweeper, FlowUsage, SweepResult};
pub use table::{
    CopiedFlows, FlowBounds, FlowCapacity, FlowPins, FlowTable, FrontendFlows, monotonic_ns,
};
