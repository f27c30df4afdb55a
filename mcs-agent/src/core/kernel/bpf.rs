//! bpf(2) and the other raw system calls for which aya 0.14 and rustix have no safe call.
//!
//! The loader and the maps are built on this module. It knows no hook, no map by name and no place of a pin.
//! Each function says what aya lacks.

#![expect(unsafe_code, reason = "bpf(2), getsockopt(2) and mapped memory")]

mod array;
mod hash;
mod link;
mod object;
mod storage;
mod syscall;

pub use array::{Access, ReadOnly, ReadWrite};
pub use link::own_netns_cookie;

pub(crate) use array::MappedArray;
pub(crate) use hash::{PinnedHash, into_io};
pub(crate) use link::{
    TcxEntry, TcxLinkInfo, attach_by_tcx, attach_to_cgroup, cgroup_link_info, detach_link,
    effective_programs, open_link, query_tcx, tcx_link_info, update_link,
};
pub(crate) use object::{
    BpfObject, PinState, is_withheld, open_pin, program_name, remove_directory, remove_file,
    replace_pin,
};
pub(crate) use storage::SocketIterator;
pub(crate) use syscall::ReaderBarrier;
