//! Pins: files on a BPF file system that keep a map, program or link alive.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use aya_obj::generated::bpf_cmd;

use super::syscall::{call, fd_field, open, zeroed_attr};

/// Opens a pinned object of any kind. aya opens a map, program or link of which it knows the kind, and gives
/// the descriptor of a map alone.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = path_field(path)?;
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let object = unsafe { &mut attr.__bindgen_anon_4 };
    object.pathname = path.as_ptr().addr() as u64;
    // SAFETY: the path outlives the call; a new descriptor.
    unsafe { open(bpf_cmd::BPF_OBJ_GET, &mut attr) }
}

/// Whether the kernel lacked memory or descriptors, or the process a right: the object may exist all the same.
pub(crate) fn is_withheld(error: &io::Error) -> bool {
    const WITHHELD: [i32; 5] =
        [libc::EAGAIN, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EPERM];
    error.raw_os_error().is_some_and(|code| WITHHELD.contains(&code))
}

/// Pins an object at `path`, and replaces what is pinned there. A directory is moved aside, since it holds
/// files of others. aya pins only what it made itself, and replaces nothing.
///
/// The object is pinned at `scratch` first, on the same file system, and renamed: the link that was pinned
/// at `path` stays attached until its successor has taken its place.
pub(crate) fn replace_pin(object: BorrowedFd<'_>, path: &Path, scratch: &Path) -> io::Result<()> {
    // An agent that was killed before the rename leaves this pin.
    remove_file(scratch)?;
    pin(object, scratch)?;
    move_aside(path)?;
    fs::rename(scratch, path)
}

fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = path_field(path)?;
    let mut attr = zeroed_attr();
    // SAFETY: fields of a union of integers.
    let fields = unsafe { &mut attr.__bindgen_anon_4 };
    fields.pathname = path.as_ptr().addr() as u64;
    fields.bpf_fd = fd_field(object);
    // SAFETY: the path outlives the call.
    unsafe { call(bpf_cmd::BPF_OBJ_PIN, &mut attr).map(drop) }
}

fn move_aside(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push("-foreign");
    fs::rename(path, aside)
}

/// Removes a file. Returns whether there was one.
pub(crate) fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a directory, unless there are files in it. An absent one counts as success.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error)
            if ![io::ErrorKind::NotFound, io::ErrorKind::DirectoryNotEmpty]
                .contains(&error.kind()) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

fn path_field(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
