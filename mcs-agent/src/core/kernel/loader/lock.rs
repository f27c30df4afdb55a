//! The lock that makes one agent the only one on its bpffs directory.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

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
