//! The cgroup that the socket programs are attached to.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// The cgroup that the socket programs are attached to: they see every process below it.
#[derive(Debug)]
pub struct CgroupRoot {
    /// Its directory.
    pub path: PathBuf,
    /// Its id, which is the inode of the directory.
    pub id: u64,
    /// The open directory.
    pub directory: File,
}

/// Why there is no cgroup to attach to.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// No cgroup v2 file system is mounted.
    #[error("no cgroup v2 file system is mounted: mount one, or name it with --cgroup-root")]
    NotMounted,
    /// The mount shows only a part of the hierarchy.
    #[error(
        "the cgroup v2 mount {path} is rooted at a child cgroup: programs attached there would \
         miss most of the node. Mount the host's hierarchy (in a container: hostPath), or name \
         the cgroup you mean with --cgroup-root"
    )]
    RootedAtChild {
        /// The mount.
        path: PathBuf,
    },
    /// The cgroup that a flag names is not on cgroup v2.
    #[error(
        "--cgroup-root {path} is not on a cgroup v2 file system: name a directory below its mount point \
         (`findmnt -t cgroup2`)"
    )]
    NotCgroup2 {
        /// The directory.
        path: PathBuf,
    },
    /// It does not exist.
    #[error(
        "--cgroup-root {path} does not exist: name the mount point of cgroup v2 (`findmnt -t cgroup2`), or a directory \
         below it"
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("cannot open the cgroup {path}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl CgroupRoot {
    /// The cgroup that a flag names, or else the root of the mounted hierarchy. On a hybrid host the directory of all
    /// hierarchies stands for the one of version 2.
    pub fn find(named: Option<&Path>) -> Result<Self, CgroupError> {
        if let Some(path) = named {
            let unified = path.join("unified");
            return match Self::open(path) {
                Err(CgroupError::NotCgroup2 { .. }) if unified.is_dir() => Self::open(&unified),
                result => result,
            };
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|source| {
            CgroupError::Unusable { path: "/proc/self/mountinfo".into(), source }
        })?;
        let path = cgroup2_mount(&mounts).ok_or(CgroupError::NotMounted)?;
        if !is_root(&path) {
            return Err(CgroupError::RootedAtChild { path });
        }
        Self::open(&path)
    }

    /// Whether the path still leads to this cgroup.
    pub fn is_current(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.id)
    }

    fn open(path: &Path) -> Result<Self, CgroupError> {
        let unusable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => CgroupError::Missing { path: path.to_owned() },
            _ => CgroupError::Unusable { path: path.to_owned(), source },
        };
        let directory = File::open(path).map_err(unusable)?;
        if !is_cgroup2(path) {
            return Err(CgroupError::NotCgroup2 { path: path.to_owned() });
        }
        let id = directory.metadata().map_err(unusable)?.ino();
        Ok(Self { path: path.to_owned(), id, directory })
    }
}

/// The mount point of the first cgroup v2 mount in the text of `/proc/self/mountinfo`, where octal
/// escapes stand for white space (proc(5)).
fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (after.split(' ').next()? == "cgroup2")
            .then(|| before.split(' ').nth(4).map(|point| unescape(point).into()))?
    })
}

/// The first directory above a cgroup that is the root of its hierarchy.
pub(crate) fn mount_of(cgroup: &Path) -> PathBuf {
    let root = cgroup.ancestors().find(|path| is_cgroup2(path) && is_root(path));
    root.unwrap_or(cgroup).to_owned()
}

/// The path of a process's cgroup of version 2, as `/proc` shows it.
pub(crate) fn path_in_hierarchy(process: &str) -> io::Result<Option<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    Ok(text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned))
}

/// Whether this process is in the cgroup or below it: programs see the sockets of its processes alone.
pub(crate) fn has_this_process(cgroup: &Path) -> bool {
    let own = path_in_hierarchy("self").ok().flatten().unwrap_or_default();
    let own = own.trim_start_matches('/');
    let mount = mount_of(cgroup);
    if !own.is_empty() {
        return mount.join(own).starts_with(cgroup);
    }
    // It is in the root, or in a cgroup namespace of its own, where its path is the root.
    let in_root = fs::read_to_string(mount.join("cgroup.procs")).unwrap_or_default();
    let pid = std::process::id();
    mount == cgroup || in_root.lines().all(|line| line.parse() != Ok(pid))
}

/// The cgroups right below one; none if it cannot be read.
pub(crate) fn children(cgroup: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

/// Every cgroup v2 directory has this file, the root included.
fn is_cgroup2(path: &Path) -> bool {
    path.join("cgroup.controllers").exists()
}

/// Every cgroup but the root has this file.
fn is_root(path: &Path) -> bool {
    !path.join("cgroup.events").exists()
}

fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_v2_mount_of_a_hybrid_host() {
        let mounts = "\
30 29 0:25 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:26 / /sys/fs/cgroup/unified\\0402 rw,nosuid shared:10 master:3 - cgroup2 cgroup2 rw
32 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert_eq!(cgroup2_mount(mounts), Some("/sys/fs/cgroup/unified 2".into()));
        assert_eq!(cgroup2_mount("30 29 0:25 / /sys rw - sysfs sysfs rw"), None);
    }

    #[test]
    fn of_a_hybrid_hosts_directory_version_2_is_meant() {
        let directory = tempfile::tempdir().unwrap();
        let unified = directory.path().join("unified");
        fs::create_dir(&unified).unwrap();
        let error = CgroupRoot::find(Some(directory.path())).unwrap_err();
        assert!(matches!(error, CgroupError::NotCgroup2 { path } if path == unified));
    }

    #[test]
    fn refuses_a_directory_that_is_no_cgroup() {
        let directory = tempfile::tempdir().unwrap();
        let error = CgroupRoot::find(Some(directory.path())).unwrap_err();
        assert!(matches!(error, CgroupError::NotCgroup2 { .. }), "{error}");
        let error = CgroupRoot::find(Some(Path::new("/nowhere"))).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }
}
