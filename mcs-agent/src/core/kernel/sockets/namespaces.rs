//! The network namespaces of the node.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fd::AsFd as _,
    fs::{FsWord, fstatfs},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Directories of named namespaces: of iproute2, containerd and CRI-O; of Docker.
const DIRECTORIES: [&str; 2] = ["/run/netns", "/run/docker/netns"];
/// `NSFS_MAGIC` (linux/magic.h): the file system of namespaces.
const NSFS: FsWord = 0x6e73_6673;

/// A network namespace of the node.
#[derive(Debug)]
pub struct NetNamespace(File);

impl NetNamespace {
    /// Opens the namespace at a path such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "it is no network namespace");
        Self::open_any(path)?.ok_or_else(invalid)
    }

    /// `None` for a file of another kind.
    fn open_any(path: &Path) -> io::Result<Option<Self>> {
        // A FIFO in its place must not block.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok((fstatfs(&file)?.f_type == NSFS).then_some(Self(file)))
    }

    /// Whether this process is in it.
    pub fn is_own(&self) -> io::Result<bool> {
        let (this, own) = (self.0.metadata()?, fs::metadata("/proc/self/ns/net")?);
        Ok((this.dev(), this.ino()) == (own.dev(), own.ino()))
    }

    /// Moves the current thread there, for as long as it lives or moves on.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// The network namespaces that can be found: those with names, and those of processes.
#[derive(Debug, Default)]
pub struct NetNamespaces {
    /// Each once, the own one of this process among them.
    pub namespaces: Vec<NetNamespace>,
    /// Processes whose namespace the agent cannot see: that of another user takes `CAP_SYS_PTRACE`.
    pub unseen_processes: usize,
    known: BTreeSet<(u64, u64)>,
}

impl NetNamespaces {
    /// Finds them.
    pub fn find() -> Self {
        let mut found = Self::default();
        // A namespace that is removed meanwhile takes its sockets along.
        for path in DIRECTORIES.into_iter().flat_map(entries) {
            let _ = found.add(&path);
        }
        let is_process = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        };
        for process in entries("/proc").filter(is_process) {
            let added = found.add(&process.join("ns/net"));
            let is_closed = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            found.unseen_processes += usize::from(added.is_err_and(is_closed));
        }
        found
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        if self.known.contains(&id(fs::metadata(path)?)) {
            return Ok(());
        }
        if let Some(namespace) = NetNamespace::open_any(path)?
            && self.known.insert(id(namespace.0.metadata()?))
        {
            self.namespaces.push(namespace);
        }
        Ok(())
    }
}

/// The entries of a directory; none if it does not exist.
fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_found_once() {
        let own = fs::metadata("/proc/self/ns/net").unwrap();
        let found = NetNamespaces::find();
        let is_own = |namespace: &&NetNamespace| namespace.0.metadata().unwrap().ino() == own.ino();
        assert_eq!(found.namespaces.iter().filter(is_own).count(), 1);
    }

    #[test]
    fn what_is_no_namespace_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let mut found = NetNamespaces::default();
        found.add(&file).unwrap();
        found.add(&directory.path().join("absent")).unwrap_err();
        assert!(found.namespaces.is_empty());
    }
}
