//! The system call bpf(2) itself, and how to wait for program runs that may still use replaced entries.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
};

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_type};

/// Calls bpf(2).
///
/// # Safety
/// The part of `attr` that `command` reads is filled in, and every pointer in it is valid for what
/// the command does with it.
pub(super) unsafe fn call(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<RawFd> {
    // SAFETY: the kernel reads and writes `attr` within its size; the caller vouches for the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<bpf_attr>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(io::Error::other)
}

/// Calls bpf(2) with a command that returns a new descriptor.
///
/// # Safety
/// As for [`call`], and `command` returns a descriptor that nobody else owns.
pub(super) unsafe fn open(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for both.
    unsafe { call(command, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Reads the information about a map, program or link (`BPF_OBJ_GET_INFO_BY_FD`).
///
/// # Safety
/// `T` consists of integers, all zeros are a value of it, and the kernel takes no pointer from zeros.
pub(super) unsafe fn info<T>(object: BorrowedFd<'_>) -> io::Result<T> {
    // SAFETY: the caller vouches for it.
    let mut info: T = unsafe { std::mem::zeroed() };
    let mut attr = zeroed_attr();
    attr.info.bpf_fd = fd_field(object);
    attr.info.info_len = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    attr.info.info = (&raw mut info).addr() as u64;
    // SAFETY: `info` outlives the call and is `info_len` bytes long.
    unsafe { call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    Ok(info)
}

pub(super) fn zeroed_attr() -> bpf_attr {
    // SAFETY: the union is made of integers; the kernel expects zeros in unused fields.
    unsafe { std::mem::zeroed() }
}

pub(super) fn fd_field(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

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
