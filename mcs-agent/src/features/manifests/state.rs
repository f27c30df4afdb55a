//! Reads the directory, and turns each reading into a batch: the difference to what was read before.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::{OsStr, OsString},
    io, mem,
    sync::Arc,
};

use super::{
    ManifestSource,
    content::{FileContent, Manifest},
    directory::{Listing, MAX_FILE_BYTES, list, read_file},
};
use crate::core::{
    model::{EventBatch, Kind, ObjectRef, SourceProblem, SourceStatus},
    source::ReadEvent,
};

/// How many problems the status lists. A file that is no manifest can have one per line.
const MAX_PROBLEMS: usize = 200;
/// How often a directory that changes while it is read is read, before its change counts as a new one.
const ATTEMPTS: u32 = 3;

type Files = BTreeMap<OsString, FileContent>;

/// The manifest in force of each object.
type Objects<'a> = BTreeMap<&'a ObjectRef, &'a Manifest>;

impl ManifestSource {
    /// Whether the directory may differ from what was last read. It reads no file.
    pub(super) fn is_changed(&self) -> bool {
        self.listed.as_ref() != Some(&self.look())
    }

    /// The directory as it is now, without the content of its files.
    pub(super) fn look(&self) -> Result<Listing, io::ErrorKind> {
        list(&self.directory).map_err(|error| error.kind())
    }

    /// Reads the directory now. Returns a batch if it has changed since it was last read.
    pub fn read(&mut self) -> Option<EventBatch> {
        let (mut before, mut problems) = (None, Vec::new());
        match self.read_files() {
            Ok(files) => before = Some(mem::replace(&mut self.files, files)),
            Err(error) => {
                let consequence = self.consequence(!self.files.is_empty());
                problems.push(self.problem(format!("cannot be read: {error}; {consequence}")));
            }
        }
        problems.extend(self.files.values().flat_map(|file| file.problems.clone()));
        let (objects, duplicates) = merge(&self.files);
        problems.extend(duplicates);
        let events = match before {
            None => Vec::new(),
            Some(_) if !self.synced && self.files.values().all(|file| file.was_read) => {
                self.synced = true;
                relist(&objects, self.filter.on().is_some())
            }
            Some(before) => changes(&merge(&before).0, &objects),
        };
        let events = self.filter.pass(events);
        let status = self.status_with(problems);
        if events.is_empty() && status == *self.status {
            return None;
        }
        self.status = status.into();
        Some(EventBatch { events, status: Arc::clone(&self.status), ..EventBatch::default() })
    }

    /// Reads a directory that does not change meanwhile. If it changes at each of [`ATTEMPTS`], its listing differs from
    /// the next one.
    fn read_files(&mut self) -> io::Result<Files> {
        let mut attempt = 1;
        loop {
            let listing = list(&self.directory);
            self.listed = Some(listing.as_ref().cloned().map_err(io::Error::kind));
            let read = |name: OsString| {
                let content = self.read_file(&name);
                (name, content)
            };
            let files = listing.map(|listing| listing.into_keys().map(read).collect());
            if attempt == ATTEMPTS || !self.is_changed() {
                return files;
            }
            attempt += 1;
        }
    }

    /// The content of a file, or its last good one with the reason why it is not current.
    fn read_file(&self, name: &OsStr) -> FileContent {
        let place = name.display().to_string();
        let content = read_file(&self.directory.join(name), MAX_FILE_BYTES)
            .map_err(|message| SourceProblem { place, message })
            .and_then(|bytes| {
                FileContent::parse(name, &bytes, &self.import_group, self.filter.on())
            });
        content.unwrap_or_else(|SourceProblem { place, message }| {
            let known = self.files.get(name).cloned().unwrap_or_default();
            let message = format!("{message}; {}", self.consequence(known.was_read));
            FileContent { problems: vec![SourceProblem { place, message }], ..known }
        })
    }

    fn status_with(&self, mut problems: Vec<SourceProblem>) -> SourceStatus {
        let unlisted = problems.len().saturating_sub(MAX_PROBLEMS);
        if unlisted > 0 {
            problems.truncate(MAX_PROBLEMS);
            problems.push(self.problem(format!("{unlisted} more problems, not listed")));
        }
        let mut skipped = BTreeMap::new();
        for (kind, count) in self.files.values().flat_map(|file| &file.skipped) {
            *skipped.entry(kind.clone()).or_default() += count;
        }
        SourceStatus {
            name: format!("manifests in {}", self.directory.display()),
            problems,
            skipped,
            whole: "manifests",
            sections: self.filter.status(),
            ..SourceStatus::default()
        }
    }

    /// A problem of the whole directory.
    fn problem(&self, message: String) -> SourceProblem {
        SourceProblem { place: self.directory.display().to_string(), message }
    }

    const fn consequence(&self, has_content: bool) -> &'static str {
        match (has_content, self.synced) {
            (true, _) => "the agent keeps using what it last read",
            (false, true) => "the agent uses nothing of it",
            (false, false) => {
                "the agent uses nothing of it, and deletes nothing until it can read it"
            }
        }
    }
}

/// Merges all files. If several manifests define one object, the first one is used, and the others are problems.
fn merge(files: &Files) -> (Objects<'_>, Vec<SourceProblem>) {
    let (mut objects, mut duplicates) = (Objects::new(), Vec::new());
    for manifest in files.values().flat_map(|file| &file.manifests) {
        match objects.entry(&manifest.object) {
            Entry::Vacant(entry) => drop(entry.insert(manifest)),
            Entry::Occupied(first) => duplicates.push(SourceProblem {
                place: manifest.place.clone(),
                message: format!(
                    "{} is also in {}, which the agent uses: remove one of the two",
                    manifest.object,
                    first.get().place
                ),
            }),
        }
    }
    (objects, duplicates)
}

fn changes(before: &Objects<'_>, now: &Objects<'_>) -> Vec<ReadEvent> {
    let gone = before.keys().filter(|object| !now.contains_key(*object));
    let gone = gone.map(|object| ReadEvent::Delete((*object).clone()));
    let is_changed = |manifest: &&&Manifest| {
        before.get(&manifest.object).is_none_or(|before| before.decoded != manifest.decoded)
    };
    gone.chain(now.values().filter(is_changed).map(|manifest| manifest.event())).collect()
}

/// Events with the complete list of each kind.
fn relist(objects: &Objects<'_>, has_services: bool) -> Vec<ReadEvent> {
    let list = |kind| {
        let of_kind = objects.values().filter(|manifest| manifest.object.kind == kind);
        let valid = of_kind.filter_map(|manifest| manifest.decoded.clone().ok());
        ReadEvent::Relist { kind, objects: valid.collect() }
    };
    let services = has_services.then_some(Kind::Service);
    let lists = services.into_iter().chain([Kind::ServiceImport, Kind::EndpointSlice]).map(list);
    let malformed = objects.values().filter(|manifest| manifest.decoded.is_err());
    lists.chain(malformed.map(|manifest| manifest.event())).collect()
}

impl Manifest {
    fn event(&self) -> ReadEvent {
        match &self.decoded {
            Ok(read) => ReadEvent::Apply(read.clone()),
            Err(message) => {
                ReadEvent::Malformed { object: self.object.clone(), message: message.clone() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        path::PathBuf,
    };

    use tempfile::{TempDir, tempdir};

    use super::*;
    use crate::core::{model::ObjectEvent, source::ReadFrom};

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

    struct Directory {
        parent: TempDir,
        source: ManifestSource,
    }

    impl Directory {
        fn new() -> Self {
            let parent = tempdir().unwrap();
            let directory = parent.path().join("mcs");
            Self { parent, source: ManifestSource::new(directory, &ReadFrom::default()) }
        }

        fn path(&self) -> PathBuf {
            self.parent.path().join("mcs")
        }

        /// Reads a directory with these files alone.
        fn read(&mut self, files: &[(&str, &str)]) -> Option<EventBatch> {
            let directory = self.path();
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir(&directory).unwrap();
            for (name, text) in files {
                fs::write(directory.join(name), text).unwrap();
            }
            self.source.read()
        }

        fn events(&mut self, files: &[(&str, &str)]) -> Vec<String> {
            self.read(files).expect("a change").events.iter().map(summary).collect()
        }

        /// Its place in problems.
        fn place(&self) -> String {
            self.path().display().to_string()
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
                name: format!("manifests in {}", directory.place()),
                whole: "manifests",
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
        let malformed = "malformed ServiceImport shop/b: b.yaml, document 1: spec.ips: \
                         invalid type: integer `7`, expected a sequence";
        assert_eq!(
            directory.events(&[("a.yaml", &a), ("b.yaml", &bad)]),
            ["relist ServiceImport [shop/a]", "relist EndpointSlice []", malformed]
        );
        assert_eq!(directory.read(&[("a.yaml", &a), ("b.yaml", &format!("{bad}# same\n"))]), None);
        assert_eq!(directory.read(&[("a.yaml", &a), ("b.yaml", &format!("#\n{bad}"))]), None);
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
    fn the_directory_is_changed_until_it_is_read() {
        let mut directory = Directory::new();
        assert!(directory.source.is_changed());
        directory.read(&[("a.yaml", BROKEN)]);
        assert!(!directory.source.is_changed());
        fs::write(directory.path().join("b.yaml"), BROKEN).unwrap();
        assert!(directory.source.is_changed());
        directory.source.read();
        assert!(!directory.source.is_changed());
    }

    #[test]
    fn an_unreadable_file_is_a_broken_one() {
        let mut directory = Directory::new();
        let a = import("a", "10.0.0.1");
        directory.read(&[("a.yaml", &a)]);
        let file = File::options().write(true).open(directory.path().join("a.yaml")).unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
        let batch = directory.source.read();
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
        let mut directory = Directory::new();
        let batch = directory.source.read();
        assert!(batch.as_ref().unwrap().events.is_empty(), "not synced");
        let message = "cannot be read: No such file or directory (os error 2); the agent";
        assert_eq!(
            problems(batch),
            [(
                directory.place(),
                format!("{message} uses nothing of it, and deletes nothing until it can read it")
            )]
        );
        assert_eq!(directory.source.read(), None);
        let a = import("a", "10.0.0.1");
        assert_eq!(directory.events(&[("a.yaml", &a)])[0], "relist ServiceImport [shop/a]");
        fs::remove_dir_all(directory.path()).unwrap();
        let batch = directory.source.read();
        assert!(batch.as_ref().unwrap().events.is_empty());
        assert_eq!(problems(batch)[0].1, format!("{message} keeps using what it last read"));
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
        let crate::core::model::Object::Import(import) = &objects[0] else { panic!("{objects:?}") };
        assert_eq!((objects.len(), import.ips.as_slice()), (1, &["10.0.0.1".to_owned()][..]));
        let message = "ServiceImport shop/web is also in a.yaml, document 1, which the \
                       agent uses: remove one of the two";
        assert_eq!(
            problems(batch),
            [
                ("a.yaml, document 2".to_owned(), message.to_owned()),
                ("b.yaml, document 1".to_owned(), message.to_owned()),
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
        assert_eq!(status.problems[0].place, "c.yaml, document 1");
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
