//! Loads, pins and attaches the programs of the embedded object, takes over what an earlier agent left, and removes it.
//! Attached programs run on when the agent stops.

mod attach;
mod bpffs;
mod cgroup;
mod layout;
mod load;
mod map_memory;
mod object;
mod pins;
mod probe;
mod program_log;
mod stage;
mod tc;

pub use crate::core::kernel::bpf::own_netns_cookie;
pub use attach::{AttachedHook, HOOKS, Hook};
pub use bpffs::{BpffsError, DirectoryLock, is_held};
pub use cgroup::{CgroupError, CgroupRoot};
pub(crate) use cgroup::{children, has_this_process, mount_of, path_in_hierarchy};
pub use load::{LoadError, LoadOptions, Setting};
pub use map_memory::{capacity_within, config_memory};
pub use mcs_common::maps::SOCKET_SLOT_BITS;
pub use object::{Programs, state_bytes};
pub use pins::{CleanupSummary, MapPins, Pins, Repair, Tampering};
pub use probe::{CapabilityError, Features, ensure_capable};
pub use program_log::ProgramLogError;
pub use tc::{
    AttachOutcome, AttachedProgram, Classifiers, DetachOutcome, DevicePrograms, Mechanism,
    TcAttacher, TcError, TcHook, TcLink, detach_all,
};
