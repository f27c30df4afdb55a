//! The source that reads a directory of manifests, in the place of an API server (`--manifests`), and looks for changes
//! four times a second.

mod content;
mod directory;
mod state;
mod yaml;

use std::{
    collections::BTreeMap, ffi::OsString, future::ready, io, path::PathBuf, sync::Arc, thread,
    time::Duration,
};

use anyhow::bail;
use clap::{ArgMatches, Args, Command, FromArgMatches as _};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use self::{content::FileContent, directory::Listing};
use crate::core::{
    feature::Definition,
    model::{EventBatch, SourceStatus},
    source::{Filter, ObjectSource, ReadFrom, Running, Starting},
};

/// Manifests in the list of features.
pub const FEATURE: Definition = Definition {
    flags,
    reads,
    source: |from| Some(Box::new(ManifestSource::new(directory(from)?, from))),
    ..Definition::named("manifests")
};

/// How often the agent looks at the directory.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A directory is read once it has not changed for this long, so that no file is read half-written,
const QUIET: Duration = Duration::from_millis(100);
/// or after that many times of it, even if it goes on changing.
const MOST_WAITS: u32 = 5;

/// Reads ServiceImports and imported EndpointSlices from the `*.yaml`, `*.yml` and `*.json` files
/// of one directory, and reads all of them again when one of them changes.
///
/// If a file or the directory cannot be read, its last good content is used: a missing input is not an
/// empty one. [`Relist`](crate::core::model::ObjectEvent::Relist) is sent once, when every file of the
/// directory has been read. An incomplete list would delete objects that an unreadable file defines.
#[derive(Debug)]
pub struct ManifestSource {
    directory: PathBuf,
    /// The API group of ServiceImports.
    import_group: String,
    /// No younger than what was last read.
    listed: Option<Result<Listing, io::ErrorKind>>,
    files: BTreeMap<OsString, FileContent>,
    filter: Filter,
    /// Whether the complete lists were sent.
    synced: bool,
    /// The status of the latest batch.
    status: Arc<SourceStatus>,
}

impl ManifestSource {
    /// A source of the objects in a directory, which need not exist yet. It has no filter.
    pub fn new(directory: impl Into<PathBuf>, from: &ReadFrom) -> Self {
        Self {
            directory: directory.into(),
            import_group: from.import_group.clone(),
            filter: Filter::default(),
            listed: None,
            files: BTreeMap::new(),
            synced: false,
            status: Arc::default(),
        }
    }

    /// With this filter of objects.
    #[must_use]
    pub fn with(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }

    /// Sends a batch with the directory's content, then one for each change, until the receiver is
    /// dropped. Errors are part of the batches' status.
    pub async fn run(self, batches: mpsc::Sender<EventBatch>) {
        let (running, ended) = oneshot::channel::<()>();
        // The runtime would wait at its end for a thread of its own.
        let spawned = thread::Builder::new().name("manifests".to_owned()).spawn(move || {
            self.follow(&batches);
            drop(running);
        });
        match spawned {
            // An error is all that comes.
            Ok(_) => drop(ended.await),
            Err(error) => error!(%error, "cannot start the thread that reads manifests"),
        }
    }

    fn follow(mut self, batches: &mpsc::Sender<EventBatch>) {
        while !batches.is_closed() {
            if let Some(batch) = self.read()
                && batches.blocking_send(batch).is_err()
            {
                return;
            }
            while !batches.is_closed() {
                thread::sleep(POLL_INTERVAL);
                if self.is_changed() {
                    self.settle();
                    break;
                }
            }
        }
    }

    /// Waits for the end of a burst of changes.
    fn settle(&self) {
        let mut before = self.look();
        for _ in 0..MOST_WAITS {
            thread::sleep(QUIET);
            let now = self.look();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

impl ObjectSource for ManifestSource {
    fn start(self: Box<Self>, filter: Filter, batches: mpsc::Sender<EventBatch>) -> Starting {
        let running: Running = Box::pin(self.with(filter).run(batches));
        Box::pin(ready(Ok(running)))
    }

    fn reads_at_once(&self) -> bool {
        true
    }
}

/// The section of what an agent reads.
const SECTION: &str = "manifests";

#[derive(Debug, Args)]
struct ManifestArgs {
    /// Read objects from the *.yaml, *.yml and *.json files of this directory, and follow changes
    /// instead of an API server
    #[arg(long, env = "MCS_MANIFESTS", value_name = "DIR", conflicts_with_all = ["kubeconfig", "import_selector"])]
    manifests: Option<PathBuf>,
}

fn flags(command: Command) -> Command {
    ManifestArgs::augment_args(command)
}

fn reads(matches: &ArgMatches, from: &mut ReadFrom) -> anyhow::Result<()> {
    let directory = ManifestArgs::from_arg_matches(matches)?.manifests;
    if let Some(file) = directory.as_ref().filter(|path| path.is_file()) {
        bail!("--manifests {} is a file: give its directory", file.display());
    }
    if let Some(path) = directory.as_ref().filter(|path| path.to_str().is_none()) {
        bail!("--manifests {} is not UTF-8: give the directory another name", path.display());
    }
    // Another process that reads there too may be in another directory.
    let directory = directory.map(|path| std::path::absolute(&path).unwrap_or(path));
    from.sections.set(SECTION, &directory);
    Ok(())
}

/// The directory, if objects are read from one.
fn directory(from: &ReadFrom) -> Option<PathBuf> {
    from.sections.get::<Option<PathBuf>>(SECTION)?
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        os::unix::fs::symlink,
        path::Path,
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    use tempfile::{TempDir, tempdir};
    use tokio::{task::JoinHandle, time::timeout};

    use super::*;
    use crate::core::model::ObjectEvent;

    /// The time limit of each step, long enough for a slow machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A running source, and the names of the imports in its batches.
    struct RunningSource {
        batches: mpsc::Receiver<EventBatch>,
        task: JoinHandle<()>,
        imports: BTreeSet<String>,
        problems: usize,
        is_synced: bool,
    }

    impl RunningSource {
        fn on(directory: &Path) -> Self {
            let (sender, batches) = mpsc::channel(1);
            let task =
                tokio::spawn(ManifestSource::new(directory, &ReadFrom::default()).run(sender));
            let imports = BTreeSet::new();
            Self { batches, task, imports, problems: 0, is_synced: false }
        }

        fn take(&mut self, batch: EventBatch) {
            self.problems = batch.status.problems.len();
            for event in batch.events {
                match event {
                    ObjectEvent::Apply(object) => {
                        self.imports.insert(object.reference().key.name.to_string());
                    }
                    ObjectEvent::Delete(object) | ObjectEvent::Malformed { object, .. } => {
                        self.imports.remove(&*object.key.name);
                    }
                    ObjectEvent::Relist { objects, .. } => {
                        self.is_synced = true;
                        let names =
                            objects.iter().map(|object| object.reference().key.name.to_string());
                        self.imports.extend(names);
                    }
                }
            }
        }

        /// Takes batches until exactly these imports exist, with that many problems.
        async fn until(&mut self, imports: &[&str], problems: usize) {
            let expected: BTreeSet<_> = imports.iter().map(|name| (*name).to_owned()).collect();
            let arrived = timeout(PATIENCE, async {
                loop {
                    let batch = self.batches.recv().await.expect("the source runs");
                    self.take(batch);
                    if self.imports == expected && self.problems == problems {
                        return;
                    }
                }
            });
            assert!(
                arrived.await.is_ok(),
                "{:?} with {} problems instead of {expected:?} with {problems}",
                self.imports,
                self.problems
            );
        }
    }

    fn manifest(name: &str) -> String {
        format!(
            "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\n\
             metadata: {{name: {name}}}\nspec: {{type: Headless, ports: []}}\n"
        )
    }

    fn directory_with(files: &[(&str, &str)]) -> TempDir {
        let directory = tempdir().unwrap();
        for (file, import) in files {
            fs::write(directory.path().join(file), manifest(import)).unwrap();
        }
        directory
    }

    #[tokio::test]
    async fn changes_of_files_are_followed() {
        let directory = directory_with(&[("a.yaml", "a")]);
        let file = |name: &str| directory.path().join(name);
        let mut source = RunningSource::on(directory.path());
        source.until(&["a"], 0).await;
        assert!(source.is_synced);

        fs::write(file("b.yaml"), manifest("b")).unwrap();
        source.until(&["a", "b"], 0).await;

        fs::write(file("a.yaml"), manifest("c")).unwrap();
        source.until(&["b", "c"], 0).await;

        fs::write(file("b.yaml"), "a: [").unwrap();
        source.until(&["b", "c"], 1).await;

        fs::write(file(".b.yaml.tmp"), manifest("d")).unwrap();
        fs::rename(file(".b.yaml.tmp"), file("b.yaml")).unwrap();
        source.until(&["c", "d"], 0).await;

        fs::remove_file(file("a.yaml")).unwrap();
        source.until(&["d"], 0).await;
    }

    #[tokio::test]
    async fn the_swap_of_a_config_map_is_followed() {
        let directory = tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let publish = |version: &str, files: &[(&str, &str)]| {
            fs::create_dir(path(version)).unwrap();
            for (file, import) in files {
                fs::write(path(version).join(file), manifest(import)).unwrap();
            }
            symlink(version, path("..data_tmp")).unwrap();
            fs::rename(path("..data_tmp"), path("..data")).unwrap();
        };
        publish("..1", &[("web.yaml", "a"), ("old.yaml", "old")]);
        for file in ["web.yaml", "old.yaml"] {
            symlink(Path::new("..data").join(file), path(file)).unwrap();
        }
        let mut source = RunningSource::on(directory.path());
        source.until(&["a", "old"], 0).await;

        publish("..2", &[("web.yaml", "b")]);
        fs::remove_file(path("old.yaml")).unwrap();
        fs::remove_dir_all(path("..1")).unwrap();
        source.until(&["b"], 0).await;
    }

    #[tokio::test]
    async fn a_directory_may_come_later_go_and_come_back() {
        let parent = tempdir().unwrap();
        let directory = parent.path().join("manifests");
        let mut source = RunningSource::on(&directory);
        source.until(&[], 1).await;
        assert!(!source.is_synced);

        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("a.yaml"), manifest("a")).unwrap();
        source.until(&["a"], 0).await;

        fs::remove_dir_all(&directory).unwrap();
        source.until(&["a"], 1).await;

        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("b.yaml"), manifest("b")).unwrap();
        source.until(&["b"], 0).await;

        fs::write(directory.join("c.yaml"), manifest("c")).unwrap();
        source.until(&["b", "c"], 0).await;

        fs::rename(&directory, parent.path().join("old")).unwrap();
        source.until(&["b", "c"], 1).await;
    }

    #[tokio::test]
    async fn a_link_may_lead_to_another_directory() {
        let (one, two) = (directory_with(&[("a.yaml", "a")]), directory_with(&[("a.yaml", "b")]));
        let parent = tempdir().unwrap();
        let (link, next) = (parent.path().join("link"), parent.path().join("next"));
        symlink(one.path(), &link).unwrap();
        let mut source = RunningSource::on(&link);
        source.until(&["a"], 0).await;

        symlink(two.path(), &next).unwrap();
        fs::rename(&next, &link).unwrap();
        source.until(&["b"], 0).await;

        fs::write(two.path().join("c.yaml"), manifest("c")).unwrap();
        source.until(&["b", "c"], 0).await;
    }

    #[tokio::test]
    async fn a_linked_file_is_followed() {
        let elsewhere = directory_with(&[("target", "a")]);
        let directory = tempdir().unwrap();
        symlink(elsewhere.path().join("target"), directory.path().join("a.yaml")).unwrap();
        let mut source = RunningSource::on(directory.path());
        source.until(&["a"], 0).await;
        fs::write(elsewhere.path().join("target"), manifest("b")).unwrap();
        source.until(&["b"], 0).await;
    }

    #[test]
    fn a_burst_ends_when_it_is_quiet_and_is_cut_off() {
        let directory = directory_with(&[("a.yaml", "a")]);
        let source = ManifestSource::new(directory.path(), &ReadFrom::default());
        let start = Instant::now();
        source.settle();
        assert!(start.elapsed() >= QUIET);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    fs::write(directory.path().join("a.yaml"), number.to_string()).unwrap();
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            source.settle();
            ended.store(true, Ordering::Relaxed);
        });
    }

    #[tokio::test]
    async fn the_source_ends_with_its_receiver() {
        let directory = directory_with(&[]);
        let mut source = RunningSource::on(directory.path());
        source.until(&[], 0).await;
        drop(source.batches);
        timeout(PATIENCE, source.task).await.unwrap().unwrap();
    }
}
