//! Watches a directory with inotify, and waits for the end of a burst of changes.
//!
//! notify-debouncer-full does not serve here: it settles each path for itself, while the directory must
//! be read once per burst, and it sets no limit to a burst. Its thread also wakes up 40 times a second
//! on an idle node with this settle time.

use std::{
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tracing::{info, warn};

/// A burst is over after this time without an event.
const QUIET: Duration = Duration::from_millis(100);
/// The directory is read after this time even if the burst goes on.
const LONGEST_BURST: Duration = Duration::from_millis(500);

/// Reports that something in a directory may have changed.
pub(super) struct DirectoryWatch {
    sender: SyncSender<()>,
    changes: Receiver<()>,
    watcher: Option<RecommendedWatcher>,
    /// Whether the latest attempt to watch an existing directory failed.
    failed: bool,
}

impl DirectoryWatch {
    /// A watch that reports nothing before [`DirectoryWatch::renew`].
    pub(super) fn new() -> Self {
        // One event is as good as many.
        let (sender, receiver) = sync_channel(1);
        Self { sender, changes: receiver, watcher: None, failed: false }
    }

    /// Watches the directory that the name leads to now. (inotify watches inodes.) Changes before this call may have been
    /// missed.
    pub(super) fn renew(&mut self, directory: &Path) {
        self.watcher = None;
        let sender = self.sender.clone();
        let handler = move |event: notify::Result<Event>| {
            if !event.is_ok_and(|event| is_read(&event)) {
                // A full channel has an event that was not taken yet.
                let _ = sender.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(handler).and_then(|mut watcher| {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                if std::mem::take(&mut self.failed) {
                    info!(directory = %directory.display(), "inotify works again");
                }
            }
            Err(error) if directory.exists() && !self.failed => {
                self.failed = true;
                warn!(
                    directory = %directory.display(),
                    %error,
                    "inotify failed: the agent reads the directory every second instead",
                );
            }
            Err(_) => {}
        }
    }

    /// Waits for an event, no longer than this. Returns whether there was one since the latest that it returned.
    pub(super) fn wait(&self, longest: Duration) -> bool {
        self.changes.recv_timeout(longest).is_ok()
    }

    /// Waits for the end of a burst. The directory is then read once, and no file is read half-written.
    pub(super) fn settle(&self) {
        let limit = Instant::now() + LONGEST_BURST;
        let rest = || limit.saturating_duration_since(Instant::now());
        while !rest().is_zero() && self.wait(QUIET.min(rest())) {}
    }
}

/// Whether the event is a read. The agent's own reads cause events, which must not cause another read.
fn is_read(event: &Event) -> bool {
    matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    #[test]
    fn a_burst_ends_when_it_is_quiet() {
        let watch = DirectoryWatch::new();
        watch.sender.send(()).unwrap();
        let start = Instant::now();
        watch.settle();
        assert!(start.elapsed() >= QUIET);
        assert!(!watch.wait(Duration::ZERO), "its events are taken");
    }

    #[test]
    fn a_constant_stream_is_cut_off() {
        let watch = DirectoryWatch::new();
        let sender = watch.sender.clone();
        let stream = thread::spawn(move || while sender.send(()).is_ok() {});
        let start = Instant::now();
        watch.settle();
        let duration = start.elapsed();
        drop(watch);
        stream.join().unwrap();
        assert!(duration >= QUIET, "{duration:?}");
    }

    #[test]
    fn reading_is_no_change() {
        let read = [
            AccessKind::Open(AccessMode::Any),
            AccessKind::Close(AccessMode::Read),
            AccessKind::Read,
        ];
        for kind in read {
            assert!(is_read(&Event::new(EventKind::Access(kind))), "{kind:?}");
        }
        let written = AccessKind::Close(AccessMode::Write);
        for kind in [EventKind::Access(written), EventKind::Any, EventKind::Other] {
            assert!(!is_read(&Event::new(kind)), "{kind:?}");
        }
    }

    #[test]
    fn a_watch_follows_its_directory() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("manifests");
        let mut watch = DirectoryWatch::new();
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
