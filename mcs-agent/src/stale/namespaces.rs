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

/// Where namespaces have names: of iproute2, containerd and CRI-O; of Docker.
const DIRECTORIES: [&str; 2] = ["/run/netns", "/run/docker/netns"];
/// `NSFS_MAGIC` (linux/magic.h): the file system of namespaces.
const NSFS: FsWord = 0x6e73_6673;

/// A network namespace of the node.
#[derive(Debug)]
pub struct NetNamespace(File);

impl NetNamespace {
    /// Moves the current thread there, for as long as it lives or moves on.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// The network namespaces that can be found: those with names, and those of processes.
#[derive(Debug, Default)]
pub struct Survey {
    /// Each once, this process's own among them.
    pub namespaces: Vec<NetNamespace>,
    /// Processes that do not let us see theirs: it takes `CAP_SYS_PTRACE` for another user's.
    pub closed: usize,
    known: BTreeSet<(u64, u64)>,
}

impl Survey {
    /// Looks for them.
    pub fn new() -> Self {
        let mut survey = Self::default();
        survey.add_named();
        survey.add_of_processes();
        survey
    }

    fn add_named(&mut self) {
        for path in DIRECTORIES.into_iter().flat_map(entries) {
            // One that goes meanwhile takes its sockets along.
            let _ = self.add(&path);
        }
    }

    fn add_of_processes(&mut self) {
        let is_process = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        };
        for process in entries("/proc").filter(is_process) {
            match self.add(&process.join("ns/net")) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.closed += 1,
                // As above.
                _ => {}
            }
        }
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        if self.known.contains(&id(fs::metadata(path)?)) {
            return Ok(());
        }
        // Whatever lies there, opening it does not wait.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let kind = fstatfs(&file)?.f_type;
        if kind == NSFS && self.known.insert(id(file.metadata()?)) {
            self.namespaces.push(NetNamespace(file));
        }
        Ok(())
    }
}

/// What is in a directory; nothing if there is none.
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
        let survey = Survey::new();
        let is_own = |namespace: &&NetNamespace| namespace.0.metadata().unwrap().ino() == own.ino();
        assert_eq!(survey.namespaces.iter().filter(is_own).count(), 1);
    }

    #[test]
    fn what_is_no_namespace_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let mut survey = Survey::default();
        survey.add(&file).unwrap();
        survey.add(&directory.path().join("absent")).unwrap_err();
        assert!(survey.namespaces.is_empty());
    }
}
