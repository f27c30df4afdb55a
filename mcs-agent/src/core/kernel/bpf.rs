//! bpf(2) and the other raw system calls for which aya 0.14 and rustix have no safe call.
//!
//! The loader and the maps are built on this module. It knows no hook, no map by name and no place of a pin.
//! Each function says what aya lacks.

#![expect(unsafe_code, reason = "bpf(2), getsockopt(2) and mapped memory")]

mod array;
mod barrier;
mod batch;
mod cgroup;
mod hash;
mod link;
mod netns;
mod object;
mod pin;
mod program;
mod storage;
mod syscall;
mod tcx;

pub use array::{Access, ReadOnly, ReadWrite};
pub use netns::own_netns_cookie;

pub(crate) use array::MappedArray;
pub(crate) use barrier::ReaderBarrier;
pub(crate) use cgroup::{attach_to_cgroup, cgroup_link_info, effective_programs};
pub(crate) use hash::{PinnedHash, into_io};
pub(crate) use link::{detach_link, open_link, update_link};
pub(crate) use object::{BpfObject, PinState};
pub(crate) use pin::{is_withheld, open_pin, remove_directory, remove_file, replace_pin};
pub(crate) use program::program_name;
pub(crate) use storage::SocketIterator;
pub(crate) use tcx::{TcxEntry, TcxLinkInfo, attach_by_tcx, query_tcx, tcx_link_info};
