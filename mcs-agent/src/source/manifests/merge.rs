//! Merges the objects of all files of a directory. A change costs what the changed files hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    sync::Arc,
};

use super::content::{FileContent, FilePosition, Manifest};
use crate::{
    model::{Kind, ObjectRef, SourceProblem},
    source::adopt::{ReadEvent, ReadObject},
};

/// The objects of all files. If several manifests define one object, the first one is used.
#[derive(Debug, Default)]
pub(super) struct MergedObjects {
    files: BTreeMap<Arc<OsStr>, Arc<FileContent>>,
    /// The manifests of each object, in the order of files.
    places: BTreeMap<ObjectRef, Vec<Place>>,
    /// The objects with more than one.
    duplicated: BTreeSet<ObjectRef>,
}

/// A manifest: its file, and its index there.
type Place = (Arc<OsStr>, usize);

#[derive(PartialEq, Debug)]
enum DecodedObject {
    Valid(Arc<ReadObject>),
    Malformed(String),
}

impl MergedObjects {
    /// Replaces the contents of files; `None` removes one. Returns the events that follow.
    pub(super) fn replace(
        &mut self,
        changed: BTreeMap<OsString, Option<Arc<FileContent>>>,
    ) -> Vec<ReadEvent> {
        let mut touched = BTreeSet::new();
        for (name, content) in &changed {
            let former = self.files.get(name.as_os_str());
            for content in former.into_iter().chain(content) {
                touched.extend(content.manifests.iter().map(|manifest| manifest.object.clone()));
            }
        }
        let before: Vec<_> = touched.iter().map(|object| self.decoded(object)).collect();
        for (name, content) in changed {
            self.remove(&name);
            if let Some(content) = content {
                self.add(name.into(), content);
            }
        }
        let (mut gone, mut events) = (Vec::new(), Vec::new());
        for (object, before) in touched.into_iter().zip(before) {
            match self.decoded(&object) {
                None => gone.extend(before.map(|_| ReadEvent::Delete(object))),
                Some(after) if before.as_ref() != Some(&after) => events.push(after.event(object)),
                Some(_) => {}
            }
        }
        gone.append(&mut events);
        gone
    }

    fn remove(&mut self, name: &OsStr) {
        let Some(content) = self.files.remove(name) else { return };
        for Manifest { object, .. } in &content.manifests {
            let Some(places) = self.places.get_mut(object) else { continue };
            places.retain(|(file, _)| **file != *name);
            if places.len() < 2 {
                self.duplicated.remove(object);
            }
            if places.is_empty() {
                self.places.remove(object);
            }
        }
    }

    fn add(&mut self, name: Arc<OsStr>, content: Arc<FileContent>) {
        for (index, Manifest { object, .. }) in content.manifests.iter().enumerate() {
            let place = (Arc::clone(&name), index);
            let Some(places) = self.places.get_mut(object) else {
                self.places.insert(object.clone(), vec![place]);
                continue;
            };
            let at = places.partition_point(|other| *other < place);
            places.insert(at, place);
            self.duplicated.insert(object.clone());
        }
        self.files.insert(name, content);
    }

    /// The manifest of an object that is used.
    fn decoded(&self, object: &ObjectRef) -> Option<DecodedObject> {
        let (file, index) = self.places.get(object)?.first()?;
        let content = self.files.get(file)?;
        Some(match &content.manifests.get(*index)?.decoded {
            Ok(object) => DecodedObject::Valid(Arc::clone(object)),
            Err(problem) => {
                let place = place(file, problem.position);
                DecodedObject::Malformed(format!("{place}: {}", problem.message))
            }
        })
    }

    /// A problem for each manifest that is not used, in the order of files.
    pub(super) fn duplicates(&self) -> Vec<SourceProblem> {
        let mut unused = BTreeMap::new();
        for object in &self.duplicated {
            let Some([first, others @ ..]) = self.places.get(object).map(Vec::as_slice) else {
                continue;
            };
            unused.extend(others.iter().map(|other| (other, (object, first))));
        }
        let problem = |(other, (object, first))| SourceProblem {
            place: self.place(other),
            message: format!(
                "{object} is also in {}, which the agent uses: remove one of the two",
                self.place(first)
            ),
        };
        unused.into_iter().map(problem).collect()
    }

    fn place(&self, (file, index): &Place) -> String {
        let manifest = self.files.get(file).and_then(|content| content.manifests.get(*index));
        place(file, manifest.map(|manifest| manifest.position))
    }

    /// Events with the complete list of each kind.
    pub(super) fn relist(&self) -> Vec<ReadEvent> {
        let mut lists: BTreeMap<Kind, Vec<ReadObject>> = BTreeMap::new();
        let mut malformed = Vec::new();
        for object in self.places.keys() {
            match self.decoded(object) {
                Some(DecodedObject::Valid(read)) => {
                    lists.entry(object.kind).or_default().push((*read).clone());
                }
                other => malformed.extend(other.map(|other| other.event(object.clone()))),
            }
        }
        let relist =
            |kind| ReadEvent::Relist { kind, objects: lists.remove(&kind).unwrap_or_default() };
        let kinds = [Kind::Service, Kind::ServiceImport, Kind::EndpointSlice];
        kinds.map(relist).into_iter().chain(malformed).collect()
    }
}

impl DecodedObject {
    fn event(self, object: ObjectRef) -> ReadEvent {
        match self {
            Self::Valid(read) => ReadEvent::Apply((*read).clone()),
            Self::Malformed(message) => ReadEvent::Malformed { object, message },
        }
    }
}

/// The text of a place, such as `web.yaml, document 2, line 14`.
pub(super) fn place(file: &OsStr, position: Option<FilePosition>) -> String {
    match position {
        Some(position) => format!("{}, {position}", file.display()),
        None => file.display().to_string(),
    }
}
