//! Programs on network devices.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_prog_info};

use super::{bpf, fd_field, link_info, owned, zeroed_attr};

/// What a link of tcx is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::loader) struct TcxLinkInfo {
    /// The link's id.
    pub(in crate::loader) id: u32,
    /// The device's index; 0 when that is gone, or when the link has been detached.
    pub(in crate::loader) ifindex: u32,
    /// `enum bpf_attach_type`.
    pub(in crate::loader) attach_type: u32,
    /// The program's id.
    pub(in crate::loader) program_id: u32,
}

/// Asks about a link; `None` if it is not one of tcx.
pub(in crate::loader) fn tcx_link_info(link: BorrowedFd<'_>) -> io::Result<Option<TcxLinkInfo>> {
    const BPF_LINK_TYPE_TCX: u32 = 11;
    let info = link_info(link)?;
    if info.type_ != BPF_LINK_TYPE_TCX {
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

/// Attaches a program to a device by tcx. `flags` say where among others.
pub(in crate::loader) fn create_tcx_link(
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
    // SAFETY: no pointers.
    let fd = unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr)? };
    // SAFETY: the kernel just made it.
    Ok(unsafe { owned(fd) })
}

/// A program that is attached to a device by tcx.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::loader) struct TcxEntry {
    /// The program's id.
    pub(in crate::loader) program_id: u32,
    /// The link's id; 0 without a link.
    pub(in crate::loader) link_id: u32,
}

/// The programs of tcx on one side of a device, in the order in which they run.
pub(in crate::loader) fn query_tcx(
    ifindex: u32,
    attach_type: bpf_attach_type,
) -> io::Result<Vec<TcxEntry>> {
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
    unsafe { bpf(bpf_cmd::BPF_PROG_QUERY, &mut attr)? };
    // SAFETY: an integer either way.
    let count = unsafe { attr.query.__bindgen_anon_2.count } as usize;
    let entries = program_ids.into_iter().zip(link_ids).take(count);
    Ok(entries.map(|(program_id, link_id)| TcxEntry { program_id, link_id }).collect())
}

/// What a program is called (15 bytes at most), or `None` if there is none with this id any more.
pub(in crate::loader) fn program_name(id: u32) -> io::Result<Option<String>> {
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_6.__bindgen_anon_1.prog_id = id;
    // SAFETY: no pointers.
    let program = match unsafe { bpf(bpf_cmd::BPF_PROG_GET_FD_BY_ID, &mut attr) } {
        // SAFETY: the kernel just made it.
        Ok(fd) => unsafe { owned(fd) },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // SAFETY: integers only.
    let mut info: bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut attr = zeroed_attr();
    attr.info.bpf_fd = fd_field(program.as_fd());
    attr.info.info_len = u32::try_from(size_of::<bpf_prog_info>()).map_err(io::Error::other)?;
    attr.info.info = (&raw mut info).addr() as u64;
    // SAFETY: `info` outlives the call, is `info_len` bytes long, and asks for no arrays.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)? };
    let name: [u8; 16] = bytemuck::cast(info.name);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}
