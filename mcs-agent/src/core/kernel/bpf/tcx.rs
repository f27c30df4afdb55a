//! Programs on network devices, by tcx (Linux 6.6).

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_link_type};

use super::{
    link::link_info,
    syscall::{call, fd_field, open, zeroed_attr},
};

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
