//! The maps in the kernel: written by the agent, read by the command line.

mod array;
mod counters;

pub use array::Access;
pub use counters::{Counts, read as read_counters};
