//! Links of any type: the kernel's objects that attach a program for as long as they exist.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use aya_obj::generated::{bpf_cmd, bpf_link_info};

use super::{
    object::{ObjectKind, kind},
    pin::open_pin,
    syscall::{call, fd_field, info, zeroed_attr},
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
