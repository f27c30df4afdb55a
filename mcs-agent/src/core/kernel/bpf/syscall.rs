//! The system call bpf(2) itself.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
};

use aya_obj::generated::{bpf_attr, bpf_cmd};

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
