//! The flows of the packet path, as user space sees them: the flow table, a flow as its two entries, and the sweep that
//! removes flows that are over.
//!
//! The agent sweeps only the flow table. In the other maps that the programs fill (fragments, affinity), the programs
//! ignore entries that are too old, and the kernel evicts the least recently used entry.

mod bounds;
mod capacity;
mod clock;
mod connects;
mod evictions;
mod migration;
mod pair;
mod pins;
#[cfg(test)]
mod properties;
mod scan;
mod sweep;
mod sweeper;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod used_flag;

pub use bounds::FlowBounds;
pub use capacity::FlowCapacity;
pub use clock::monotonic_ns;
pub use connects::{Connects, FlowRecords, is_device};
pub use evictions::EvictionRecord;
pub use migration::FlowMigration;
pub use pair::{Connect, FlowEntry, FlowPair, Pairing};
pub use pins::FlowPins;
pub use scan::{FlowScan, ScanTotals};
pub use sweep::{FlowSweep, SweepResult};
pub use sweeper::FlowSweeper;
pub use table::{CopiedFlows, FlowTable, FrontendFlows};
pub use usage::FlowUsage;
pub use used_flag::FlowsUsedFlag;
