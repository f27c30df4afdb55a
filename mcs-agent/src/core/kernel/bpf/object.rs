//! Open maps, programs and links, and whether a pin leads to one of them.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use super::{
    pin::{open_pin, replace_pin},
    syscall::info,
};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_file_is_no_object_of_bpf() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(kind(file.as_fd()).unwrap(), ObjectKind::Other);
    }
}
