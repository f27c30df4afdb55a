//! Links of any type, the kernel's objects that attach a program for as long as they exist, and what tells where they are:
//! programs on cgroups, programs on network devices by tcx (Linux 6.6), and the cookie of a network namespace.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use aya_obj::generated::{
    BPF_F_BEFORE, BPF_F_QUERY_EFFECTIVE, bpf_attach_type, bpf_cmd, bpf_link_info, bpf_link_type,
};

use super::{
    object::{ObjectKind, kind, open_pin},
    syscall::{call, fd_field, info, open, zeroed_attr},
};

/// Opens a pinned link; `None` if nothing is pinned there, or no link. aya's `PinnedLink` takes a map or a
/// program for a link too, and gives away no descriptor.
pub(crate) fn open_link(pin: &Path) -> io::Result<Option<OwnedFd>> {
    match open_pin(pin) {
        Ok(object) => Ok((kind(object.as_fd())? == ObjectKind::Link).then_some(object)),
        Err(error) if error.kind() == io::ErrorKind::NotFound || !is_pin(pin) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether there is a pin. A directory and a symbolic link are none, and nobody can open them.
fn is_pin(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|entry| entry.is_file())
}

/// Makes a link run another program. The kernel replaces one program by the other at once: no call and no
/// packet misses both. aya updates links of tcx, but not those of cgroups.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = zeroed_attr();
    attr.link_update.link_fd = fd_field(link);
    attr.link_update.__bindgen_anon_1.new_prog_fd = fd_field(program);
    // SAFETY: no pointers.
    unsafe { call(bpf_cmd::BPF_LINK_UPDATE, &mut attr).map(drop) }
}

/// Detaches a link, however many pins and descriptors it has (Linux 5.9). aya closes its own descriptor
/// instead, which detaches nothing while a pin is left.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = zeroed_attr();
    attr.link_detach.link_fd = fd_field(link);
    // SAFETY: no pointers.
    unsafe { call(bpf_cmd::BPF_LINK_DETACH, &mut attr).map(drop) }
}

pub(super) fn link_info(link: BorrowedFd<'_>) -> io::Result<bpf_link_info> {
    // SAFETY: integers; the pointers in some of its variants are lengths and addresses of 0.
    unsafe { info(link) }
}

/// What a link attaches, and to which cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CgroupLinkInfo {
    /// The cgroup's id; 0 if the cgroup was removed.
    pub(crate) cgroup_id: u64,
    /// `enum bpf_attach_type`.
    pub(crate) attach_type: u32,
    /// The program's id.
    pub(crate) program_id: u32,
}

/// Reads what a link attaches; `None` if it is no cgroup link. aya's `LinkInfo` has the link's type and the
/// program's id, but neither the cgroup's id nor the attach type.
pub(crate) fn cgroup_link_info(link: BorrowedFd<'_>) -> io::Result<Option<CgroupLinkInfo>> {
    let info = link_info(link)?;
    if info.type_ != bpf_link_type::BPF_LINK_TYPE_CGROUP as u32 {
        return Ok(None);
    }
    // SAFETY: the kernel filled the variant that the type names.
    let cgroup = unsafe { info.__bindgen_anon_1.cgroup };
    Ok(Some(CgroupLinkInfo {
        cgroup_id: cgroup.cgroup_id,
        attach_type: cgroup.attach_type,
        program_id: info.prog_id,
    }))
}

/// Attaches a program to a cgroup, after the programs that are attached there; with `first` before them, where the kernel
/// orders them (Linux 6.17). Programs of cgroups below run before both. aya attaches too, but its link gives away no
/// descriptor: the link could not be updated, identified or pinned twice.
///
/// `BPF_F_PREORDER` would come before cgroups below too. But until 6.18.40 and 7.1.5 the kernel counts wrong where a cgroup
/// has such a program: an update of any link there replaces another one's program (CVE-2026-72427).
pub(crate) fn attach_to_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    attach_type: bpf_attach_type,
    first: bool,
) -> io::Result<OwnedFd> {
    let attach = |flags| {
        let mut attr = zeroed_attr();
        attr.link_create.__bindgen_anon_1.prog_fd = fd_field(program);
        attr.link_create.__bindgen_anon_2.target_fd = fd_field(cgroup);
        attr.link_create.attach_type = attach_type as u32;
        attr.link_create.flags = flags;
        // SAFETY: no pointers; a new link.
        unsafe { open(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
    };
    if first {
        match attach(BPF_F_BEFORE) {
            // Earlier kernels take no flags here.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result,
        }
    }
    attach(0)
}

/// The ids of the programs that run for the sockets of a cgroup at one attach type, in their order: those
/// attached to it and to its ancestors. aya queries no cgroup.
pub(crate) fn effective_programs(
    cgroup: BorrowedFd<'_>,
    attach_type: bpf_attach_type,
) -> io::Result<Vec<u32>> {
    /// The kernel allows as many for each level (`BPF_CGROUP_MAX_PROGS`, kernel/bpf/cgroup.c). Programs
    /// beyond it are left out.
    const MOST: usize = 64;
    let mut ids = [0_u32; MOST];
    let mut attr = zeroed_attr();
    attr.query.__bindgen_anon_1.target_fd = fd_field(cgroup);
    attr.query.attach_type = attach_type as u32;
    attr.query.query_flags = BPF_F_QUERY_EFFECTIVE;
    attr.query.prog_ids = ids.as_mut_ptr().addr() as u64;
    attr.query.__bindgen_anon_2.count = u32::try_from(MOST).map_err(io::Error::other)?;
    // SAFETY: `ids` outlives the call and is `count` long.
    match unsafe { call(bpf_cmd::BPF_PROG_QUERY, &mut attr) } {
        Err(error) if error.raw_os_error() != Some(libc::ENOSPC) => return Err(error),
        _ => {}
    }
    // SAFETY: an integer either way.
    let count = unsafe { attr.query.__bindgen_anon_2.count } as usize;
    Ok(ids.into_iter().take(count).collect())
}

/// What a link attaches, and to which device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TcxLinkInfo {
    /// The link's id.
    pub(crate) id: u32,
    /// The device's index; 0 if the device was removed or the link detached.
    pub(crate) ifindex: u32,
    /// `enum bpf_attach_type`.
    pub(crate) attach_type: u32,
    /// The program's id.
    pub(crate) program_id: u32,
}

/// Reads what a link attaches; `None` if it is no link of tcx. aya's `LinkInfo` has neither the device nor the
/// attach type.
pub(crate) fn tcx_link_info(link: BorrowedFd<'_>) -> io::Result<Option<TcxLinkInfo>> {
    let info = link_info(link)?;
    if info.type_ != bpf_link_type::BPF_LINK_TYPE_TCX as u32 {
        return Ok(None);
    }
    // SAFETY: the kernel filled the variant that the type names.
    let tcx = unsafe { info.__bindgen_anon_1.tcx };
    Ok(Some(TcxLinkInfo {
        id: info.id,
        ifindex: tcx.ifindex,
        attach_type: tcx.attach_type,
        program_id: info.prog_id,
    }))
}

/// Attaches a program to a device. `flags` is its place among others (`BPF_F_BEFORE`, `BPF_F_AFTER`). aya
/// attaches too, but to a device by its name, which may have changed hands since it was listed, and its link
/// gives away no descriptor.
pub(crate) fn attach_by_tcx(
    program: BorrowedFd<'_>,
    ifindex: u32,
    attach_type: bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attr = zeroed_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = fd_field(program);
    attr.link_create.__bindgen_anon_2.target_ifindex = ifindex;
    attr.link_create.attach_type = attach_type as u32;
    attr.link_create.flags = flags;
    // SAFETY: no pointers; a new link.
    unsafe { open(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// A program that is attached to a device by tcx.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TcxEntry {
    /// The program's id.
    pub(crate) program_id: u32,
    /// The link's id; 0 without a link.
    pub(crate) link_id: u32,
}

/// The programs on one side of a device, in the order in which they run. aya queries a device by its name
/// and gives no ids of links.
pub(crate) fn query_tcx(ifindex: u32, attach_type: bpf_attach_type) -> io::Result<Vec<TcxEntry>> {
    /// `BPF_MPROG_MAX` of `include/linux/bpf_mprog.h`.
    const MOST: usize = 64;
    let mut program_ids = [0_u32; MOST];
    let mut link_ids = [0_u32; MOST];
    let mut attr = zeroed_attr();
    attr.query.__bindgen_anon_1.target_ifindex = ifindex;
    attr.query.attach_type = attach_type as u32;
    attr.query.prog_ids = program_ids.as_mut_ptr().addr() as u64;
    attr.query.link_ids = link_ids.as_mut_ptr().addr() as u64;
    attr.query.__bindgen_anon_2.count = u32::try_from(MOST).map_err(io::Error::other)?;
    // SAFETY: both arrays outlive the call and are `count` long.
    unsafe { call(bpf_cmd::BPF_PROG_QUERY, &mut attr)? };
    // SAFETY: an integer either way.
    let count = unsafe { attr.query.__bindgen_anon_2.count } as usize;
    let entries = program_ids.into_iter().zip(link_ids).take(count);
    Ok(entries.map(|(program_id, link_id)| TcxEntry { program_id, link_id }).collect())
}

/// The cookie of the network namespace that this thread is in (`SO_NETNS_COOKIE`, Linux 5.14), as
/// `bpf_get_netns_cookie` returns it. rustix does not know the option.
pub fn own_netns_cookie() -> io::Result<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).map_err(io::Error::other)?;
    // SAFETY: the cookie is 8 bytes, as `length` says; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}
