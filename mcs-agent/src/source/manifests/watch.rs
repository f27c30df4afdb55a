//! Watches a directory with inotify, and waits for the end of a burst of changes.

use std::{
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, WatchFlags},
    io,
};
use tracing::{info, warn};

/// A burst is over after this time without an event.
const QUIET: Duration = Duration::from_millis(100);
/// The directory is read after this time even if the burst goes on.
const LONGEST_BURST: Duration = Duration::from_millis(500);
/// Reads are no changes: the agent's own must not cause another one.
const CHANGES: WatchFlags = WatchFlags::ALL_EVENTS
    .difference(WatchFlags::OPEN)
    .difference(WatchFlags::ACCESS)
    .difference(WatchFlags::CLOSE_NOWRITE);

/// Reports that something in a directory may have changed.
#[derive(Default)]
pub(super) struct DirectoryWatch {
    inotify: Option<OwnedFd>,
    /// Whether the latest attempt to watch an existing directory failed.
    failed: bool,
}

impl DirectoryWatch {
    /// Watches the directory that the name leads to now. (inotify watches inodes.) Changes before this call may have been
    /// missed.
    pub(super) fn renew(&mut self, directory: &Path) {
        // The kernel limits the instances of a user.
        self.inotify = None;
        let inotify = watch(directory);
        let name = directory.display();
        match &inotify {
            Ok(_) if self.failed => {
                self.failed = false;
                info!(directory = %name, "inotify works again");
            }
            Err(error) if !self.failed && directory.exists() => {
                self.failed = true;
                let message = "inotify failed: the agent reads the directory every second instead";
                warn!(directory = %name, %error, "{message}");
            }
            _ => {}
        }
        self.inotify = inotify.ok();
    }

    /// Waits for an event, no longer than this. Returns whether there was one.
    pub(super) fn wait(&self, longest: Duration) -> bool {
        let Some(inotify) = &self.inotify else {
            thread::sleep(longest);
            return false;
        };
        let timeout = Timespec::try_from(longest).unwrap_or_default();
        let events = poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&timeout));
        let is_changed = events.is_ok_and(|events| events > 0);
        if is_changed {
            // One event is as good as many. The next poll returns at once for those that do not fit.
            let _ = io::read(inotify, &mut [0_u8; 4096]);
        }
        is_changed
    }

    /// Waits for the end of a burst. The directory is then read once, and no file is read half-written.
    pub(super) fn settle(&self) {
        let limit = Instant::now() + LONGEST_BURST;
        let rest = || limit.saturating_duration_since(Instant::now());
        while !rest().is_zero() && self.wait(QUIET.min(rest())) {}
    }
}

fn watch(directory: &Path) -> io::Result<OwnedFd> {
    let inotify = inotify::init(CreateFlags::CLOEXEC)?;
    inotify::add_watch(&inotify, directory, CHANGES)?;
    Ok(inotify)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn a_burst_ends_when_it_is_quiet() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::default();
        watch.renew(directory.path());
        fs::write(directory.path().join("a.yaml"), "").unwrap();
        let start = Instant::now();
        watch.settle();
        assert!(start.elapsed() >= QUIET);
        assert!(!watch.wait(Duration::ZERO), "its events are taken");
    }

    #[test]
    fn a_constant_stream_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::default();
        watch.renew(directory.path());
        let (file, ended) = (directory.path().join("a.yaml"), AtomicBool::new(false));
        let duration = thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    fs::write(&file, "").unwrap();
                }
            });
            let start = Instant::now();
            watch.settle();
            let duration = start.elapsed();
            ended.store(true, Ordering::Relaxed);
            duration
        });
        assert!(duration >= QUIET, "{duration:?}");
    }

    #[test]
    fn a_watch_follows_its_directory() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("manifests");
        let mut watch = DirectoryWatch::default();
        watch.renew(&directory);
        assert!(!watch.failed, "there is no directory yet");
        for round in ["new", "removed and made again", "renamed and made again"] {
            fs::create_dir(&directory).unwrap();
            watch.renew(&directory);
            fs::write(directory.join("a.yaml"), round).unwrap();
            expect_burst(&watch, round);
            fs::read(directory.join("a.yaml")).unwrap();
            assert!(!watch.wait(QUIET), "{round}: a read is no change");
            match round {
                "removed and made again" => {
                    fs::rename(&directory, parent.path().join("old")).unwrap();
                }
                _ => fs::remove_dir_all(&directory).unwrap(),
            }
            expect_burst(&watch, round);
        }
    }

    /// Waits for an event and the end of its burst.
    fn expect_burst(watch: &DirectoryWatch, what: &str) {
        assert!(watch.wait(Duration::from_secs(20)), "{what}");
        watch.settle();
    }
}
