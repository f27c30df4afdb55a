//! The flows of the packet path, as user space sees them.

mod capacity;

pub use capacity::FlowCapacity;
