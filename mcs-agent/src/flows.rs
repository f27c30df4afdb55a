//! The flows of the packet path, as user space sees them: the flow table, what its two entries for a flow say
//! together, and the sweep that removes flows that are over.
//!
//! Of the maps that the programs fill the agent sweeps only the flow table. The programs ignore an entry of the
//! others (fragments, affinity) that is too old, and those maps evict the least recently used entry.

mod capacity;
mod clock;
mod connects;
mod evictions;
mod migration;
mod pair;
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

pub use capacity::FlowCapacity;
pub use clock::monotonic_ns;
pub use connects::{Connects, FlowRecords, is_device};
pub use evictions::EvictionRecord;
pub use migration::FlowMigration;
pub use pair::{Connect, FlowEntry, FlowPair, Pairing};
pub use scan::{FlowScan, ScanTotals};
pub use sweep::{FlowSweep, SweepResult};
pub use sweeper::FlowSweeper;
pub use table::{CopiedFlows, FlowTable, FrontendFlows};
pub use usage::FlowUsage;
pub use used_flag::FlowsUsedFlag;
