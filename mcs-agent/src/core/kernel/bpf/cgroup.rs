//! Programs on cgroups.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use aya_obj::generated::{
    BPF_F_BEFORE, BPF_F_QUERY_EFFECTIVE, bpf_attach_type, bpf_cmd, bpf_link_type,
};

use super::{
    link::link_info,
    syscall::{call, fd_field, open, zeroed_attr},
};

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
