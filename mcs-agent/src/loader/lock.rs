use std::{fs::File, io, path::Path};

use rustix::fs::{FlockOperation, flock};

/// Held for as long as this agent runs on its bpffs directory; a second one waits for it. The
/// kernel drops it with the process, however that ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: File,
}

impl DirectoryLock {
    /// Takes the lock, or `None` if another agent holds it.
    pub fn try_take(directory: &Path) -> io::Result<Option<Self>> {
        let file = File::open(directory)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _directory: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an agent holds the lock now.
pub fn is_held(directory: &Path) -> io::Result<bool> {
    // A shared lock: two commands that look at the same time do not see each other as agents.
    let file = File::open(directory)?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
