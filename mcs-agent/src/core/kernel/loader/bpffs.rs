//! The BPF file system that holds the pins, and the lock that makes one agent the only one on its directory.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock, statfs},
    io::Errno,
};
use thiserror::Error;

/// `BPF_FS_MAGIC` of `include/uapi/linux/magic.h`.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// `S_IWGRP`, `S_IWOTH`.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why `--bpffs` cannot be used.
#[derive(Debug, Error)]
pub enum BpffsError {
    /// It does not exist.
    #[error(
        "--bpffs {path} does not exist: name the mount point of a BPF file system, such as /sys/fs/bpf, or a directory \
         right below one, which the agent makes"
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be made or read.
    #[error("cannot use --bpffs {path}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is on another file system.
    #[error("--bpffs {path} is not on a BPF file system: mount one with `mount -t bpf bpf {path}`")]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// Others can write to its directory for pins.
    #[error(
        "{path} can be written by others, who could replace what is pinned there: find out who made \
         it, and remove it"
    )]
    Shared {
        /// The directory.
        path: PathBuf,
    },
}

/// Checks that a directory is on a BPF file system, or makes it if its parent is on one.
pub(crate) fn prepare(path: &Path) -> Result<(), BpffsError> {
    let unusable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => BpffsError::Missing { path: path.to_owned() },
        _ => BpffsError::Unusable { path: path.to_owned(), source },
    };
    match path.parent() {
        Some(parent) if !path.exists() && is_bpffs(parent).unwrap_or(false) => {
            fs::create_dir(path).map_err(unusable)
        }
        _ if is_bpffs(path).map_err(unusable)? => Ok(()),
        _ => Err(BpffsError::NotBpffs { path: path.to_owned() }),
    }
}

/// Makes a directory for pins. It fails if another user owns the directory or may write to it: a BPF file system may
/// let everybody make directories.
pub(crate) fn make_own(path: &Path) -> Result<(), BpffsError> {
    let unusable = |source| BpffsError::Unusable { path: path.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(unusable(error)),
        _ => {}
    }
    // A symbolic link is not followed.
    let found = fs::symlink_metadata(path).map_err(unusable)?;
    let is_own = found.is_dir()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & WRITABLE_BY_OTHERS == 0;
    if is_own { Ok(()) } else { Err(BpffsError::Shared { path: path.to_owned() }) }
}

fn is_bpffs(path: &Path) -> io::Result<bool> {
    let stat = statfs(path)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "magic numbers are 32 bits; the field is a long"
    )]
    let magic = stat.f_type as u32;
    Ok(magic == BPF_FS_MAGIC)
}

/// The lock of a bpffs directory. An agent keeps it while it runs; a second agent waits for it. The kernel
/// releases it when the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: File,
}

impl DirectoryLock {
    /// Takes the lock, or `None` if another agent holds it. It waits for commands, which hold it for an instant, in
    /// `is_held`.
    pub fn try_take(directory: &Path) -> io::Result<Option<Self>> {
        for _ in 0..2 {
            if let Some(lock) = Self::take_now(directory)? {
                return Ok(Some(lock));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Self::take_now(directory)
    }

    /// The same without waiting for commands: whoever asks does so again.
    pub fn take_now(directory: &Path) -> io::Result<Option<Self>> {
        let directory = File::open(directory)?;
        let is_taken = lock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(is_taken.then_some(Self { directory }))
    }

    /// Whether this path leads to the locked directory.
    pub fn is_of(&self, directory: &Path) -> bool {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let [held, found] = [self.directory.metadata(), fs::metadata(directory)]
            .map(|metadata| metadata.map(id).ok());
        held.is_some() && held == found
    }
}

/// Whether an agent has the lock now.
pub fn is_held(directory: &Path) -> io::Result<bool> {
    // A shared lock: two commands that ask at the same time do not take each other for an agent.
    Ok(!lock(&File::open(directory)?, FlockOperation::NonBlockingLockShared)?)
}

/// Whether nobody else has a lock that excludes this one.
fn lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let own = parent.path().join("own");
        make_own(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        make_own(&own).unwrap();
        for mode in [0o755, 0o750] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            make_own(&own).unwrap();
        }
        for mode in [0o770, 0o707, 0o777] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            let error = make_own(&own).unwrap_err();
            assert!(matches!(error, BpffsError::Shared { .. }), "{mode:o}: {error}");
        }
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        let error = make_own(&link).unwrap_err();
        assert!(matches!(error, BpffsError::Shared { .. }), "{error}");
    }

    #[test]
    fn says_how_to_mount_one() {
        let directory = tempfile::tempdir().unwrap();
        let error = prepare(directory.path()).unwrap_err();
        assert!(error.to_string().contains("mount -t bpf"), "{error}");
        let error = prepare(&directory.path().join("missing")).unwrap_err();
        assert!(matches!(error, BpffsError::Missing { .. }), "{error}");
    }
}
