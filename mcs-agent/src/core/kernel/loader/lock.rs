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
    /// Takes the lock, or `None` if another agent holds it.
    pub fn try_take(directory: &Path) -> io::Result<Option<Self>> {
        let file = File::open(directory)?;
        // A command holds it for an instant, in `is_held`.
        for attempt in 0..3 {
            if attempt > 0 {
                thread::sleep(Duration::from_millis(20));
            }
            if lock(&file, FlockOperation::NonBlockingLockExclusive)? {
                return Ok(Some(Self { directory: file }));
            }
        }
        Ok(None)
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
