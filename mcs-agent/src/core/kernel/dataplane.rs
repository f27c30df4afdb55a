//! The maps in the kernel: written by the agent, read by the command line.

mod address_filter;
pub(crate) mod counters;
mod kernel;
mod leave;
mod liveness;

pub use crate::core::kernel::bpf::{Access, ReadOnly, ReadWrite};
pub use address_filter::{AddressFilter, FilterDensity, FilterWords, FormerFilter};
pub use counters::{
    Counts, Tally, count_affinity, meaning as counter_meaning, read as read_counters,
};
pub use kernel::{KernelMaps, KernelMapsReader, PinnedMaps};
pub use leave::{StorageFallback, hand_back_vips};
pub use liveness::{LivenessWriter, Run, SignOfLife, read_run_record, write_run_record};
