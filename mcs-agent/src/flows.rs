//! The flows of the packet path, as user space sees them: what the two entries of each say together,
//! and when it is over.
//!
//! Of the maps that the programs fill only the flow table is swept. In the others (fragments,
//! affinity) an entry that is too old is none to the programs, and being LRU they never fill up.

mod capacity;
mod pair;
#[cfg(test)]
mod properties;
mod survey;
#[cfg(test)]
mod tests;
mod usage;

pub use capacity::FlowCapacity;
pub use pair::{Entry, FlowPair, Pairing};
pub use survey::{Survey, Surveyor};
pub use usage::FlowUsage;
