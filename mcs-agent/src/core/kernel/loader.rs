//! Loads, pins and attaches the programs of the embedded object, takes over what an earlier agent left, and removes it.
//! Attached programs run on when the agent stops.

mod attach;
mod bpffs;
mod capabilities;
mod cgroup;
mod ebpf_loader;
mod hook;
mod layout;
mod load_error;
mod lock;
mod map_memory;
mod object;
mod options;
mod pins;
mod probe;
mod program_log;
mod stage;
mod tampering;
mod tc;
mod tracepoints;

pub use crate::core::kernel::bpf::own_netns_cookie;
pub use attach::AttachedHook;
pub use bpffs::BpffsError;
pub use capabilities::{CapabilityError, ensure_capable};
pub use cgroup::{CgroupError, CgroupRoot};
pub(crate) use cgroup::{children, has_this_process, mount_of, path_in_hierarchy};
pub use hook::{HOOKS, Hook};
pub use load_error::LoadError;
pub use lock::{DirectoryLock, is_held};
pub use map_memory::{capacity_within, config_memory};
pub use mcs_common::maps::SOCKET_SLOT_BITS;
pub use object::{Programs, state_bytes};
pub use options::{LoadOptions, Setting};
pub use pins::{CleanupSummary, MapPins, Pins};
pub use probe::Features;
pub use program_log::ProgramLogError;
pub use tampering::{Repair, Tampering};
pub use tc::{
    AttachOutcome, AttachedProgram, Classifiers, DetachOutcome, DevicePrograms, Mechanism,
    TcAttacher, TcError, TcHook, TcLink, detach_all,
};
