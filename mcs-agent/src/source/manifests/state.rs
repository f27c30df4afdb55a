//! Turns each reading of the directory into a batch: the difference to the files read before.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    hash::{BuildHasher, RandomState},
    io,
    path::Path,
    sync::Arc,
};

use super::{
    content::{FileContent, FileProblem},
    directory::{DirectoryReading, FileError, FileFingerprint, FileReading},
    merge::{MergedObjects, place},
};
use crate::{
    model::{EventBatch, SourceProblem, SourceStatus},
    source::{
        ReadScope,
        adopt::{Adopter, Coverage, List, ReadEvent},
    },
};

/// How many problems the status lists. A file that is no manifest can have one per line.
const MAX_PROBLEMS: usize = 200;

/// The last good content of every file of a directory.
///
/// It sends no complete lists before every file could be read once. An incomplete list would delete
/// objects that an unreadable file defines.
#[derive(Debug)]
pub(super) struct DirectoryState {
    directory: String,
    scope: ReadScope,
    files: Files,
    merged: MergedObjects,
    adopter: Adopter,
    /// Whether the complete lists were sent.
    synced: bool,
    /// The status of the latest batch.
    status: Option<Arc<SourceStatus>>,
    hasher: RandomState,
}

type Files = BTreeMap<OsString, ManifestFile>;

#[derive(Clone, Debug, Default)]
struct ManifestFile {
    /// The fingerprint of what was last parsed, if the file keeps it no longer than its bytes: it is not read again.
    fingerprint: Option<FileFingerprint>,
    /// The hash of the bytes that were last parsed. Unchanged files are not parsed again.
    hash: Option<u64>,
    /// The last good content.
    content: Option<Arc<FileContent>>,
    /// The reason why `content` is not current.
    problem: Option<FileProblem>,
}

impl DirectoryState {
    pub(super) fn new(directory: &Path, scope: ReadScope) -> Self {
        Self {
            directory: directory.display().to_string(),
            adopter: Adopter::new(scope.adopt.clone(), Coverage::All),
            scope,
            files: BTreeMap::new(),
            merged: MergedObjects::default(),
            synced: false,
            status: None,
            hasher: RandomState::new(),
        }
    }

    /// The fingerprint of a file that need not be read again as long as it has it.
    pub(super) fn fingerprint(&self, name: &OsStr) -> Option<FileFingerprint> {
        self.files.get(name)?.fingerprint
    }

    /// Applies a reading of the directory. Returns a batch if it changes anything.
    pub(super) fn update(&mut self, reading: DirectoryReading) -> Option<EventBatch> {
        let (changes, unreadable) = match reading {
            Ok(files) => (self.take(files), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let is_complete =
            unreadable.is_none() && self.files.values().all(|file| file.content.is_some());
        let events = if is_complete && !self.synced {
            self.synced = true;
            self.merged.relist()
        } else {
            changes
        };
        let events: Vec<_> =
            events.into_iter().flat_map(|event| self.adopter.take(List::Main, event)).collect();
        let status = self.status_with(unreadable, self.merged.duplicates());
        let unchanged = self.status.take().filter(|known| **known == status);
        if events.is_empty() && unchanged.is_some() {
            self.status = unchanged;
            return None;
        }
        let status = self.status.insert(unchanged.unwrap_or_else(|| status.into())).clone();
        Some(EventBatch { events, status, ..EventBatch::default() })
    }

    /// Parses the files that have changed. Returns the events that follow.
    fn take(
        &mut self,
        files: BTreeMap<OsString, Result<FileReading, FileError>>,
    ) -> Vec<ReadEvent> {
        let mut before = std::mem::take(&mut self.files);
        let mut changed = BTreeMap::new();
        for (name, reading) in files {
            let former = before.remove(&name).unwrap_or_default();
            let content = former.content.clone();
            let file = former.updated(reading, &self.hasher, &self.scope);
            if content.as_ref().map(Arc::as_ptr) != file.content.as_ref().map(Arc::as_ptr) {
                changed.insert(name.clone(), file.content.clone());
            }
            self.files.insert(name, file);
        }
        changed.extend(before.into_keys().map(|name| (name, None)));
        self.merged.replace(changed)
    }

    fn status_with(
        &self,
        unreadable: Option<io::Error>,
        duplicates: Vec<SourceProblem>,
    ) -> SourceStatus {
        let mut problems = Vec::new();
        if let Some(error) = unreadable {
            let consequence = self.consequence(!self.files.is_empty());
            let message = format!("cannot be read: {error}; {consequence}");
            problems.push(SourceProblem { place: self.directory.clone(), message });
        }
        problems.extend(self.files.iter().flat_map(|(name, file)| self.problems(name, file)));
        problems.extend(duplicates);
        let unlisted = problems.len().saturating_sub(MAX_PROBLEMS);
        if unlisted > 0 {
            problems.truncate(MAX_PROBLEMS);
            let message = format!("{unlisted} more problems, not listed");
            problems.push(SourceProblem { place: self.directory.clone(), message });
        }
        SourceStatus {
            name: format!("manifests in {}", self.directory),
            kinds: Vec::new(),
            problems,
            adoptable: self.adopter.adoptable(),
            adoptable_groups: Vec::new(),
            skipped: skipped(&self.files),
        }
    }

    /// The problems of a file. For a broken file, problems of its last good content are not repeated.
    fn problems(&self, name: &OsStr, file: &ManifestFile) -> Vec<SourceProblem> {
        let at = |problem: &FileProblem, message: String| SourceProblem {
            place: place(name, problem.position),
            message,
        };
        if let Some(problem) = &file.problem {
            let consequence = self.consequence(file.content.is_some());
            return vec![at(problem, format!("{}; {consequence}", problem.message))];
        }
        let problems = file.content.iter().flat_map(|content| &content.problems);
        problems.map(|problem| at(problem, problem.message.clone())).collect()
    }

    fn consequence(&self, has_content: bool) -> &'static str {
        match (has_content, self.synced) {
            (true, _) => "the agent keeps using what it last read",
            (false, true) => "the agent uses nothing of it",
            (false, false) => {
                "the agent uses nothing of it, and deletes nothing until it can read it"
            }
        }
    }
}

impl ManifestFile {
    fn updated(
        self,
        reading: Result<FileReading, FileError>,
        hasher: &RandomState,
        scope: &ReadScope,
    ) -> Self {
        let (bytes, fingerprint) = match reading {
            Ok(FileReading::Unchanged) => return self,
            Ok(FileReading::Read(bytes, fingerprint)) => (Ok(bytes), fingerprint),
            Err(error) => (Err(error), None),
        };
        let hash = bytes.as_ref().ok().map(|bytes| hasher.hash_one(bytes));
        if hash.is_some() && hash == self.hash {
            return Self { fingerprint, ..self };
        }
        match bytes.and_then(|bytes| Ok(FileContent::parse(&bytes, scope)?)) {
            Ok(Ok(content)) => {
                Self { fingerprint, hash, content: Some(Arc::new(content)), problem: None }
            }
            Ok(Err(problem)) => {
                Self { fingerprint, hash, content: self.content, problem: Some(problem) }
            }
            Err(error) => {
                let problem = FileProblem { position: None, message: error.to_string() };
                let content = self.content;
                Self { fingerprint: None, hash: None, content, problem: Some(problem) }
            }
        }
    }
}

fn contents(files: &Files) -> impl Iterator<Item = (&OsStr, &FileContent)> {
    files.iter().filter_map(|(name, file)| Some((name.as_os_str(), file.content.as_deref()?)))
}

fn skipped(files: &Files) -> BTreeMap<String, u64> {
    let mut skipped = BTreeMap::new();
    for (_, content) in contents(files) {
        for (kind, count) in &content.skipped {
            *skipped.entry(kind.clone()).or_default() += count;
        }
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectEvent;

    const NOTHING: &[(&str, &str)] = &[];
    const BROKEN: &str = "a: [";

    fn import(name: &str, ip: &str) -> String {
        format!(
            "---\napiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\n\
             metadata: {{name: {name}, namespace: shop}}\n\
             spec: {{type: ClusterSetIP, ips: [{ip}], ports: []}}\n"
        )
    }

    fn slice(name: &str) -> String {
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
             metadata: {{name: {name}, labels: {{multicluster.kubernetes.io/service-name: web}}}}\n"
        )
    }

    struct Directory(DirectoryState);

    impl Directory {
        fn new() -> Self {
            Self(DirectoryState::new(Path::new("/etc/mcs"), ReadScope::default()))
        }

        fn read(&mut self, files: &[(&str, &str)]) -> Option<EventBatch> {
            let files = files.iter().map(|(name, text)| {
                let bytes = text.as_bytes().into();
                (name.into(), Ok(FileReading::Read(bytes, None)))
            });
            self.0.update(Ok(files.collect()))
        }

        fn events(&mut self, files: &[(&str, &str)]) -> Vec<String> {
            self.read(files).expect("a change").events.iter().map(summary).collect()
        }
    }

    fn summary(event: &ObjectEvent) -> String {
        match event {
            ObjectEvent::Apply(object) => format!("apply {}", object.reference()),
            ObjectEvent::Delete(object) => format!("delete {object}"),
            ObjectEvent::Malformed { object, message } => format!("malformed {object}: {message}"),
            ObjectEvent::Relist { kind, objects } => {
                let keys: Vec<_> =
                    objects.iter().map(|object| object.reference().key.to_string()).collect();
                format!("relist {kind} [{}]", keys.join(" "))
            }
        }
    }

    fn problems(batch: Option<EventBatch>) -> Vec<(String, String)> {
        let problems = batch.expect("a change").status.problems.clone();
        problems.into_iter().map(|problem| (problem.place, problem.message)).collect()
    }

    #[test]
    fn the_first_complete_reading_is_a_relist() {
        let mut directory = Directory::new();
        let files = [
            ("b.yaml", import("b", "10.0.0.2")),
            ("a.yaml", import("a", "10.0.0.1") + &slice("s")),
        ];
        let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
        assert_eq!(
            directory.events(&files),
            ["relist ServiceImport [shop/a shop/b]", "relist EndpointSlice [default/s]"]
        );
        assert_eq!(directory.read(&files), None);
    }

    #[test]
    fn an_empty_directory_is_complete() {
        let mut directory = Directory::new();
        let batch = directory.read(NOTHING).unwrap();
        assert_eq!(batch.events.len(), 2);
        assert_eq!(
            batch.status,
            Arc::new(SourceStatus {
                name: "manifests in /etc/mcs".to_owned(),
                ..SourceStatus::default()
            })
        );
    }

    #[test]
    fn later_readings_are_differences() {
        let mut directory = Directory::new();
        let (a, b, s) = (import("a", "10.0.0.1"), import("b", "10.0.0.2"), slice("s"));
        directory.read(&[("a.yaml", &a), ("b.yaml", &b)]);
        assert_eq!(
            directory.events(&[("a.yaml", &import("a", "10.0.0.9")), ("s.yaml", &s)]),
            [
                "delete ServiceImport shop/b",
                "apply ServiceImport shop/a",
                "apply EndpointSlice default/s",
            ]
        );
        let moved = [("c.yaml", &*import("a", "10.0.0.9")), ("s.yaml", &*format!("# moved\n{s}"))];
        assert_eq!(directory.read(&moved), None, "the objects are the same");
        assert_eq!(
            directory.events(NOTHING),
            ["delete ServiceImport shop/a", "delete EndpointSlice default/s"]
        );
    }

    #[test]
    fn a_malformed_object_is_withdrawn_alone() {
        let mut directory = Directory::new();
        let (a, b) = (import("a", "10.0.0.1"), import("b", "10.0.0.2"));
        let bad = b.replace("[10.0.0.2]", "7");
        let malformed = "malformed ServiceImport shop/b: b.yaml, document 1, line 5: spec.ips: \
                         invalid type: integer `7`, expected a sequence";
        assert_eq!(
            directory.events(&[("a.yaml", &a), ("b.yaml", &bad)]),
            ["relist ServiceImport [shop/a]", "relist EndpointSlice []", malformed]
        );
        assert_eq!(directory.read(&[("a.yaml", &a), ("b.yaml", &format!("{bad}# same\n"))]), None);
        assert_eq!(
            directory.events(&[("a.yaml", &a), ("b.yaml", &format!("#\n{bad}"))]),
            [malformed.replace("line 5", "line 6")]
        );
        assert_eq!(
            directory.events(&[("a.yaml", &a), ("b.yaml", &b)]),
            ["apply ServiceImport shop/b"]
        );
        assert_eq!(directory.events(&[("a.yaml", &a), ("b.yaml", &bad)]), [malformed]);
        assert_eq!(directory.events(&[("a.yaml", &a)]), ["delete ServiceImport shop/b"]);
    }

    #[test]
    fn a_broken_file_keeps_its_last_good_content() {
        let mut directory = Directory::new();
        let (a, b) = (import("a", "10.0.0.1"), import("b", "10.0.0.2"));
        directory.read(&[("a.yaml", &a)]);
        let batch = directory.read(&[("a.yaml", &format!("{a}---\n{BROKEN}")), ("b.yaml", &b)]);
        assert_eq!(
            batch.as_ref().unwrap().events.iter().map(summary).collect::<Vec<_>>(),
            ["apply ServiceImport shop/b"]
        );
        assert_eq!(
            problems(batch),
            [(
                "a.yaml, document 2, line 7".to_owned(),
                "unclosed bracket '['; the agent keeps using what it last read".to_owned()
            )]
        );
        assert_eq!(
            directory.events(&[("a.yaml", &import("a", "10.0.0.9")), ("b.yaml", &b)]),
            ["apply ServiceImport shop/a"]
        );
        assert_eq!(directory.events(&[("b.yaml", &b)]), ["delete ServiceImport shop/a"]);
    }

    #[test]
    fn a_file_broken_at_start_delays_the_relist() {
        let (a, b) = (import("a", "10.0.0.1"), import("b", "10.0.0.2"));
        let start = || {
            let mut directory = Directory::new();
            let batch = directory.read(&[("a.yaml", &a), ("b.yaml", BROKEN)]);
            assert_eq!(summary(&batch.as_ref().unwrap().events[0]), "apply ServiceImport shop/a");
            assert_eq!(batch.as_ref().unwrap().events.len(), 1);
            assert_eq!(
                problems(batch),
                [(
                    "b.yaml, document 1, line 1".to_owned(),
                    "unclosed bracket '['; the agent uses nothing of it, and deletes nothing \
                     until it can read it"
                        .to_owned()
                )]
            );
            directory
        };
        assert_eq!(
            start().events(&[("a.yaml", &a), ("b.yaml", &b)]),
            ["relist ServiceImport [shop/a shop/b]", "relist EndpointSlice []"]
        );
        assert_eq!(
            start().events(&[("a.yaml", &a)]),
            ["relist ServiceImport [shop/a]", "relist EndpointSlice []"]
        );
        let mut directory = start();
        assert_eq!(
            directory.events(&[("b.yaml", BROKEN), ("c.yaml", &b)]),
            ["delete ServiceImport shop/a", "apply ServiceImport shop/b"]
        );
        directory.read(NOTHING);
        let later = directory.read(&[("a.yaml", &a), ("b.yaml", BROKEN)]);
        assert_eq!(
            problems(later)[0].1,
            "unclosed bracket '['; the agent uses nothing of it",
            "once synced, always synced"
        );
    }

    #[test]
    fn a_file_that_is_not_read_again_keeps_its_content() {
        let mut directory = Directory::new();
        let (a, b) = (import("a", "10.0.0.1"), import("b", "10.0.0.2"));
        directory.read(&[("a.yaml", &a), ("b.yaml", &b)]);
        let changed = import("b", "10.0.0.9");
        let files = [
            ("a.yaml".into(), Ok(FileReading::Unchanged)),
            ("b.yaml".into(), Ok(FileReading::Read(changed.into(), None))),
        ];
        let batch = directory.0.update(Ok(files.into())).unwrap();
        assert_eq!(
            batch.events.iter().map(summary).collect::<Vec<_>>(),
            ["apply ServiceImport shop/b"]
        );
        assert_eq!(directory.events(&[("a.yaml", &a)]), ["delete ServiceImport shop/b"]);
    }

    #[test]
    fn an_unreadable_file_is_a_broken_one() {
        let mut directory = Directory::new();
        let a = import("a", "10.0.0.1");
        directory.read(&[("a.yaml", &a)]);
        let batch = directory.0.update(Ok([("a.yaml".into(), Err(FileError::TooLarge))].into()));
        assert!(batch.as_ref().unwrap().events.is_empty());
        assert_eq!(
            problems(batch),
            [(
                "a.yaml".to_owned(),
                "larger than 64 MiB: split it; the agent keeps using what it last read".to_owned()
            )]
        );
        let batch = directory.read(&[("a.yaml", &a)]).unwrap();
        assert_eq!((batch.events, batch.status.problems.clone()), (vec![], vec![]));
    }

    #[test]
    fn a_missing_directory_is_no_empty_one() {
        let missing = || Err(io::ErrorKind::NotFound.into());
        let mut directory = Directory::new();
        let batch = directory.0.update(missing());
        assert!(batch.as_ref().unwrap().events.is_empty(), "not synced");
        assert_eq!(
            problems(batch),
            [(
                "/etc/mcs".to_owned(),
                "cannot be read: entity not found; the agent uses nothing of it, and deletes nothing \
                 until it can read it"
                    .to_owned()
            )]
        );
        assert_eq!(directory.0.update(missing()), None);
        let a = import("a", "10.0.0.1");
        assert_eq!(directory.events(&[("a.yaml", &a)])[0], "relist ServiceImport [shop/a]");
        let batch = directory.0.update(missing());
        assert!(batch.as_ref().unwrap().events.is_empty());
        assert_eq!(
            problems(batch)[0].1,
            "cannot be read: entity not found; the agent keeps using what it last read"
        );
        assert_eq!(directory.events(NOTHING), ["delete ServiceImport shop/a"]);
    }

    #[test]
    fn of_two_manifests_of_one_object_the_first_is_used() {
        let mut directory = Directory::new();
        let one = import("web", "10.0.0.1");
        let two = import("web", "10.0.0.2");
        let batch = directory.read(&[("b.yaml", &two), ("a.yaml", &format!("{one}{two}"))]);
        let ObjectEvent::Relist { objects, .. } = &batch.as_ref().unwrap().events[0] else {
            panic!("{batch:?}");
        };
        let crate::model::Object::Import(import) = &objects[0] else { panic!("{objects:?}") };
        assert_eq!((objects.len(), import.ips.as_slice()), (1, &["10.0.0.1".to_owned()][..]));
        let message = "ServiceImport shop/web is also in a.yaml, document 1, line 2, which the \
                       agent uses: remove one of the two";
        assert_eq!(
            problems(batch),
            [
                ("a.yaml, document 2, line 7".to_owned(), message.to_owned()),
                ("b.yaml, document 1, line 2".to_owned(), message.to_owned()),
            ]
        );
        assert_eq!(
            directory.events(&[("b.yaml", &two)]),
            ["apply ServiceImport shop/web"],
            "the other takes its place"
        );
    }

    #[test]
    fn objects_that_are_not_used_are_counted() {
        let mut directory = Directory::new();
        let pod = "apiVersion: v1\nkind: Pod\n";
        let status = directory.read(&[("a.yaml", pod), ("b.yaml", pod), ("c.yaml", "text")]);
        let status = status.unwrap().status;
        assert_eq!(status.skipped, [("v1/Pod".to_owned(), 2)].into());
        assert_eq!(status.problems[0].place, "c.yaml, document 1, line 1");
        let batch = directory.read(&[("a.yaml", pod), ("c.yaml", "text")]).unwrap();
        assert_eq!((batch.events.len(), &batch.status.skipped["v1/Pod"]), (0, &1));
    }

    #[test]
    fn problems_are_not_listed_without_end() {
        let mut directory = Directory::new();
        let problems = problems(directory.read(&[("a.yaml", &"--- x\n".repeat(1_000))]));
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        assert_eq!(problems[MAX_PROBLEMS].1, "800 more problems, not listed");
    }
}
