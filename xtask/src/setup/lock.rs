//! One setup at a time: what is installed goes to one cache directory, and to the system.

use std::{
    env,
    fs::{self, File},
    io::{Read as _, Seek as _, Write as _},
    path::Path,
    process,
};

use anyhow::{Context as _, Result};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// The lock on installation. The kernel releases it when its process ends in any way.
pub(super) struct Lock(#[expect(dead_code, reason = "it is held until it is dropped")] File);

impl Lock {
    /// Takes the lock. If another process has it, calls `wait` once with that process, and waits.
    pub(super) fn take(directory: &Path, wait: &mut dyn FnMut(&str)) -> Result<Self> {
        let path = directory.join("lock");
        Self::open(&path, wait).with_context(|| format!("cannot lock {}", path.display()))
    }

    fn open(path: &Path, wait: &mut dyn FnMut(&str)) -> Result<Self> {
        fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)?;
                wait(holder.trim());
                flock(&file, FlockOperation::LockExclusive)?;
            }
            other => other?,
        }
        file.set_len(0)?;
        file.rewind()?;
        let arguments: Vec<_> = env::args().skip(1).collect();
        writeln!(file, "process {}: cargo xtask {}", process::id(), arguments.join(" "))?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn the_second_waits_and_says_for_whom() {
        let directory = tempfile::tempdir().unwrap();
        let first = Lock::take(directory.path(), &mut |_| panic!("nobody has it")).unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let sender = sender;
                Lock::take(directory.path(), &mut |holder| sender.send(holder.to_owned()).unwrap())
            });
            let holder = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
            assert!(holder.starts_with(&format!("process {}: cargo xtask", process::id())));
            thread::sleep(Duration::from_millis(50));
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
