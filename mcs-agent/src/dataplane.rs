//! The maps in the kernel: written by the agent, read by the command line.

mod array;
mod counters;
mod fallback;
mod kernel;
mod run;

pub use array::Access;
pub use counters::{Counts, read as read_counters};
pub use fallback::StorageFallback;
pub use kernel::KernelMaps;
pub use run::{Run, read_run_record, write_run_record};
