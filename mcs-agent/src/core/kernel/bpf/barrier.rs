//! Waits for the end of program runs that may still use replaced entries.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use aya_obj::generated::{bpf_cmd, bpf_map_type};

use super::syscall::{call, fd_field, open, zeroed_attr};

/// Waits for a grace period of the programs (RCU).
///
/// An update of an array of maps waits for an RCU grace period before it returns, on every kernel
/// (`maybe_wait_bpf_programs`, kernel/bpf/syscall.c), whichever the map: this one is private. aya can update
/// such an array, but makes one only as part of an object file.
#[derive(Debug)]
pub(crate) struct ReaderBarrier {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl ReaderBarrier {
    /// Makes the private map.
    pub(crate) fn new() -> io::Result<Self> {
        let inner = create_array(bpf_map_type::BPF_MAP_TYPE_ARRAY, None)?;
        let outer = create_array(bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS, Some(inner.as_fd()))?;
        Ok(Self { outer, inner })
    }

    /// Returns once every run of a program that began before this call has ended.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let key = 0_u32;
        let value = fd_field(self.inner.as_fd());
        let mut attr = zeroed_attr();
        // SAFETY: fields of a union of integers.
        let element = unsafe { &mut attr.__bindgen_anon_2 };
        element.map_fd = fd_field(self.outer.as_fd());
        element.key = (&raw const key).addr() as u64;
        element.__bindgen_anon_1.value = (&raw const value).addr() as u64;
        // SAFETY: key and value have the sizes of the map's, and outlive the call.
        unsafe { call(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr).map(drop) }
    }
}

fn create_array(kind: bpf_map_type, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = kind as u32;
    map.key_size = 4;
    map.value_size = 4;
    map.max_entries = 1;
    map.inner_map_fd = inner.map_or(0, fd_field);
    // SAFETY: no pointers; a new map.
    unsafe { open(bpf_cmd::BPF_MAP_CREATE, &mut attr) }
}
