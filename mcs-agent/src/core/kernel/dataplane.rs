//! The maps in the kernel: written by the agent, read by the command line.

mod address_filter;
mod affinity;
pub(crate) mod counters;
mod fallback;
mod hand_back;
mod kernel;
mod liveness;
mod run;

pub use crate::core::kernel::bpf::{Access, ReadOnly, ReadWrite};
pub use address_filter::{AddressFilter, FilterDensity, FilterWords, FormerFilter};
pub use affinity::count as count_affinity;
pub use counters::{Counts, Tally, meaning as counter_meaning, read as read_counters};
pub use fallback::StorageFallback;
pub use hand_back::hand_back_vips;
pub use kernel::{KernelMaps, KernelMapsReader, PinnedMaps};
pub use liveness::{LivenessWriter, SignOfLife};
pub use run::{Run, read_run_record, write_run_record};
