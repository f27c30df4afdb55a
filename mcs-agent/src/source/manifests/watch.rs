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

/// A burst of events is over when none came for this long.
const QUIET: Duration = Duration::from_millis(100);
/// A burst that does not end is cut off after this.
const LONGEST_BURST: Duration = Duration::from_millis(500);

/// Tells by inotify that something in a directory may have changed.
pub(super) struct Watch {
    directory: PathBuf,
    changed: Arc<Notify>,
    armed: Option<Armed>,
    /// Whether the last attempt to watch a directory that is there failed.
    failed: bool,
}

/// A watch on the inode that the directory's name led to.
struct Armed {
    identity: Identity,
    /// Whether that inode is no longer under this name.
    lost: Arc<AtomicBool>,
    _watcher: RecommendedWatcher,
}

/// Device, inode, and the time of birth where there is one: inode numbers are used again.
type Identity = (u64, u64, Option<SystemTime>);

impl Watch {
    /// A watch that is not armed.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, changed: Arc::default(), armed: None, failed: false }
    }

    /// Arms the watch, unless it is on the directory that the name leads to now. Says whether
    /// changes from before this call may have been missed.
    pub(super) fn renew(&mut self) -> bool {
        let identity = identity(&self.directory);
        if let (Some(armed), Some(identity)) = (&self.armed, identity)
            && armed.identity == identity
            && !armed.lost.load(Ordering::Acquire)
        {
            return false;
        }
        self.armed = None;
        let Some(identity) = identity else {
            return false;
        };
        match arm(&self.directory, identity, &self.changed) {
            Ok(armed) => {
                if self.failed {
                    info!(directory = %self.directory.display(), "inotify works again");
                }
                self.failed = false;
                self.armed = Some(armed);
                true
            }
            Err(error) => {
                if !self.failed {
                    warn!(
                        directory = %self.directory.display(),
                        %error,
                        "no inotify: changes are found by looking every second",
                    );
                }
                self.failed = true;
                false
            }
        }
    }

    /// Completes when something has happened since it last did.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits for the end of a burst, so that it is read once and no file is read half-written.
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

fn identity(directory: &Path) -> Option<Identity> {
    let metadata = fs::metadata(directory).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

fn arm(directory: &Path, identity: Identity, changed: &Arc<Notify>) -> notify::Result<Armed> {
    let lost = Arc::new(AtomicBool::new(false));
    let handler = {
        let (directory, changed, lost) = (directory.to_owned(), changed.clone(), lost.clone());
        move |event: notify::Result<Event>| {
            if event.as_ref().is_ok_and(is_read) {
                return;
            }
            if event.map_or(true, |event| takes_away(&event, &directory)) {
                lost.store(true, Ordering::Release);
            }
            changed.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(handler)?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(Armed { identity, lost, _watcher: watcher })
}

/// Reading the directory makes events too; they must not lead to another reading.
fn is_read(event: &Event) -> bool {
    matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write))
}

/// Whether the directory itself was removed or renamed.
fn takes_away(event: &Event, directory: &Path) -> bool {
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
        let mut watch = Watch::new(directory.clone());
        assert!(!watch.renew(), "there is no directory yet");
        for round in ["new", "removed and made again", "renamed and made again"] {
            fs::create_dir(&directory).unwrap();
            assert!(watch.renew(), "{round}");
            assert!(!watch.renew(), "{round}: it is armed");
            fs::write(directory.join("a.yaml"), round).unwrap();
            told(&watch, round).await;
            match round {
                "removed and made again" => {
                    fs::rename(&directory, parent.path().join("old")).unwrap();
                }
                _ => fs::remove_dir_all(&directory).unwrap(),
            }
            told(&watch, round).await;
        }
    }

    /// Waits for an event, and for the last of those that come with it.
    async fn told(watch: &Watch, what: &str) {
        let patience = Duration::from_secs(20);
        assert!(tokio::time::timeout(patience, watch.changed()).await.is_ok(), "{what}");
        watch.settled().await;
    }
}
