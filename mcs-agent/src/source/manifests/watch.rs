//! Watches a directory with inotify, and waits for the end of a burst of changes.
//!
//! notify-debouncer-full does not serve here: it settles each path for itself, while the directory must
//! be read once per burst, and it sets no limit to a burst. Its thread also wakes up 40 times a second
//! on an idle node with this settle time.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, ModifyKind},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tracing::{info, warn};

/// A burst is over after this time without an event.
const QUIET: Duration = Duration::from_millis(100);
/// The directory is read after this time even if the burst goes on.
const LONGEST_BURST: Duration = Duration::from_millis(500);

/// Reports that something in a directory may have changed.
pub(super) struct DirectoryWatch {
    directory: PathBuf,
    changed: Arc<Notify>,
    inode: Option<InodeWatch>,
    /// Whether the latest attempt to watch an existing directory failed.
    failed: bool,
}

/// An inotify watch. inotify watches inodes, and the directory's name may lead to another one later.
struct InodeWatch {
    identity: InodeIdentity,
    /// Whether the inode was removed or renamed.
    lost: Arc<AtomicBool>,
    _watcher: RecommendedWatcher,
}

/// Device, inode number, and the time of creation if the file system has it. (Inode numbers are reused.)
type InodeIdentity = (u64, u64, Option<SystemTime>);

impl DirectoryWatch {
    /// A watch that reports nothing before [`DirectoryWatch::renew`].
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, changed: Arc::default(), inode: None, failed: false }
    }

    /// Watches the directory that the name leads to now, unless it does so already. Returns whether
    /// changes before this call may have been missed.
    pub(super) fn renew(&mut self) -> bool {
        let identity = identity(&self.directory);
        if let (Some(inode), Some(identity)) = (&self.inode, identity)
            && inode.identity == identity
            && !inode.lost.load(Ordering::Acquire)
        {
            return false;
        }
        self.inode = None;
        let Some(identity) = identity else {
            return false;
        };
        match watch(&self.directory, identity, &self.changed) {
            Ok(inode) => {
                if self.failed {
                    info!(directory = %self.directory.display(), "inotify works again");
                }
                self.failed = false;
                self.inode = Some(inode);
                true
            }
            Err(error) => {
                if !self.failed {
                    warn!(
                        directory = %self.directory.display(),
                        %error,
                        "inotify failed: the agent reads the directory every second instead",
                    );
                }
                self.failed = true;
                false
            }
        }
    }

    /// Completes when there was an event since it last completed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits for the end of a burst. The directory is then read once, and no file is read half-written.
    pub(super) async fn settled(&self) {
        settled(&self.changed).await;
    }
}

async fn settled(changed: &Notify) {
    let limit = Instant::now() + LONGEST_BURST;
    loop {
        let quiet = Instant::now() + QUIET;
        let was_quiet = timeout_at(quiet.min(limit), changed.notified()).await.is_err();
        if was_quiet || Instant::now() >= limit {
            return;
        }
    }
}

fn identity(directory: &Path) -> Option<InodeIdentity> {
    let metadata = fs::metadata(directory).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

fn watch(
    directory: &Path,
    identity: InodeIdentity,
    changed: &Arc<Notify>,
) -> notify::Result<InodeWatch> {
    let lost = Arc::new(AtomicBool::new(false));
    let handler = {
        let (directory, changed, lost) = (directory.to_owned(), changed.clone(), lost.clone());
        move |event: notify::Result<Event>| {
            if event.as_ref().is_ok_and(is_read) {
                return;
            }
            if event.map_or(true, |event| is_removal(&event, &directory)) {
                lost.store(true, Ordering::Release);
            }
            changed.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(handler)?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(InodeWatch { identity, lost, _watcher: watcher })
}

/// Whether the event is a read. The agent's own reads cause events, which must not cause another read.
fn is_read(event: &Event) -> bool {
    matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
}

/// Whether the directory itself was removed or renamed.
fn is_removal(event: &Event, directory: &Path) -> bool {
    let is_self = event.paths.iter().any(|path| path == directory);
    is_self && matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn duration_of_burst(events_every: Duration, events: u32) -> Duration {
        let changed = Arc::new(Notify::new());
        let start = Instant::now();
        let burst = tokio::spawn({
            let changed = changed.clone();
            async move {
                for _ in 0..events {
                    tokio::time::sleep(events_every).await;
                    changed.notify_one();
                }
            }
        });
        settled(&changed).await;
        let duration = start.elapsed();
        burst.abort();
        duration
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_ends_when_it_is_quiet() {
        let single = duration_of_burst(Duration::ZERO, 1).await;
        assert!((QUIET..QUIET * 2).contains(&single), "{single:?}");
        let short = duration_of_burst(Duration::from_millis(50), 3).await;
        assert!((QUIET * 5 / 2..QUIET * 3).contains(&short), "{short:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_constant_stream_is_cut_off() {
        let endless = duration_of_burst(Duration::from_millis(10), 1_000).await;
        assert!((LONGEST_BURST..LONGEST_BURST + QUIET).contains(&endless), "{endless:?}");
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

    #[tokio::test]
    async fn a_watch_follows_its_directory() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("manifests");
        let mut watch = DirectoryWatch::new(directory.clone());
        assert!(!watch.renew(), "there is no directory yet");
        for round in ["new", "removed and made again", "renamed and made again"] {
            fs::create_dir(&directory).unwrap();
            assert!(watch.renew(), "{round}");
            assert!(!watch.renew(), "{round}: it is watched already");
            fs::write(directory.join("a.yaml"), round).unwrap();
            expect_burst(&watch, round).await;
            match round {
                "removed and made again" => {
                    fs::rename(&directory, parent.path().join("old")).unwrap();
                }
                _ => fs::remove_dir_all(&directory).unwrap(),
            }
            expect_burst(&watch, round).await;
        }
    }

    /// Waits for an event and the end of its burst.
    async fn expect_burst(watch: &DirectoryWatch, what: &str) {
        let patience = Duration::from_secs(20);
        assert!(tokio::time::timeout(patience, watch.changed()).await.is_ok(), "{what}");
        watch.settled().await;
    }
}
