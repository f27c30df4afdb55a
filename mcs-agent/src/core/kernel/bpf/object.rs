//! Open maps, programs and links, and pins: the files on a BPF file system that keep them alive.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use aya_obj::generated::{bpf_cmd, bpf_prog_info};

use super::syscall::{call, fd_field, info, open, zeroed_attr};

/// An open map, program or link. It outlives its pin for as long as this value lives.
#[derive(Debug)]
pub(crate) struct BpfObject {
    fd: OwnedFd,
    kind: ObjectKind,
    /// The kernel numbers maps, programs and links separately.
    id: u32,
}

/// What a descriptor leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ObjectKind {
    Map,
    Program,
    Link,
    Other,
}

/// What is at the path of a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PinState {
    /// The object itself.
    Intact,
    /// Nothing.
    Removed,
    /// Something else.
    Replaced,
}

impl BpfObject {
    /// Opens the object that is pinned at a path.
    pub(crate) fn open(pin: &Path) -> io::Result<Self> {
        let fd = open_pin(pin)?;
        let kind = kind(fd.as_fd())?;
        Self::new(fd, kind)
    }

    /// Takes a descriptor of a link, such as [`open_link`](super::open_link) returns.
    pub(crate) fn of_link(link: OwnedFd) -> io::Result<Self> {
        Self::new(link, ObjectKind::Link)
    }

    fn new(fd: OwnedFd, kind: ObjectKind) -> io::Result<Self> {
        let id = id(fd.as_fd())?;
        Ok(Self { fd, kind, id })
    }

    /// Compares this object with the object pinned at a path.
    pub(crate) fn state_of(&self, pin: &Path) -> PinState {
        match open_pin(pin).and_then(|other| self.is(other.as_fd())) {
            Ok(true) => PinState::Intact,
            Err(error) if error.kind() == io::ErrorKind::NotFound => PinState::Removed,
            Ok(false) | Err(_) => PinState::Replaced,
        }
    }

    /// Whether a descriptor leads to this object. [`kind`] is called last, since it takes locks of the kernel.
    fn is(&self, other: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(id(other)? == self.id && kind(other)? == self.kind)
    }

    /// Pins this object as [`replace_pin`] does, and makes the directories of the path.
    pub(crate) fn pin(&self, path: &Path, scratch: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        replace_pin(self.as_fd(), path, scratch)
    }
}

impl AsFd for BpfObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn id(object: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: integers. `bpf_map_info`, `bpf_prog_info` and `bpf_link_info` begin with the type and the id.
    let [_, id]: [u32; 2] = unsafe { info(object)? };
    Ok(id)
}

/// Asks what a descriptor leads to. The information of [`info`] does not say: its first word is the type of a
/// map, of a program or of a link, each numbered from 0 (3 is a map for tail calls, a program of tc and a link
/// to a cgroup). The file of the descriptor under /proc has a line that only one of them has
/// (`bpf_map_show_fdinfo`, `bpf_prog_show_fdinfo`, `bpf_link_show_fdinfo`; kernel/bpf/syscall.c, Linux 5.8).
/// The kernel takes `cgroup_mutex` or RTNL to print the file of a link.
pub(super) fn kind(object: BorrowedFd<'_>) -> io::Result<ObjectKind> {
    let file = fs::read_to_string(format!("/proc/self/fdinfo/{}", object.as_raw_fd()))?;
    let kind = |line: &str| match line.split_once(':')?.0 {
        "map_type" => Some(ObjectKind::Map),
        "prog_type" => Some(ObjectKind::Program),
        "link_type" => Some(ObjectKind::Link),
        _ => None,
    };
    Ok(file.lines().find_map(kind).unwrap_or(ObjectKind::Other))
}

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

/// A program's name (15 bytes at most); `None` if there is none with this id any more. aya finds a program by
/// its id only among all that are loaded.
pub(crate) fn program_name(id: u32) -> io::Result<Option<String>> {
    let mut attr = zeroed_attr();
    attr.__bindgen_anon_6.__bindgen_anon_1.prog_id = id;
    // SAFETY: no pointers; a new descriptor.
    let program = match unsafe { open(bpf_cmd::BPF_PROG_GET_FD_BY_ID, &mut attr) } {
        Ok(program) => program,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // SAFETY: integers; counts of 0 ask for no arrays.
    let info: bpf_prog_info = unsafe { info(program.as_fd())? };
    let name: [u8; 16] = bytemuck::cast(info.name);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_file_is_no_object_of_bpf() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(kind(file.as_fd()).unwrap(), ObjectKind::Other);
    }
}
