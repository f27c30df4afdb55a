//! Merges the objects of all files of a directory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::OsStr,
};

use super::content::{FileContent, FilePosition, Manifest};
use crate::{
    model::{Kind, ObjectRef, SourceProblem},
    source::adopt::{ReadEvent, ReadObject},
};

/// The objects of all files. If several manifests define one object, the first one is used.
pub(super) struct MergedObjects<'a> {
    objects: BTreeMap<&'a ObjectRef, MergedObject<'a>>,
    /// A problem for each manifest that is not used.
    pub(super) duplicates: Vec<SourceProblem>,
}

struct MergedObject<'a> {
    decoded: DecodedObject<'a>,
    file: &'a OsStr,
    position: FilePosition,
}

#[derive(PartialEq)]
enum DecodedObject<'a> {
    Valid(&'a ReadObject),
    Malformed(String),
}

impl<'a> MergedObjects<'a> {
    /// Merges these files, which come in the order of their names.
    pub(super) fn merge(files: impl Iterator<Item = (&'a OsStr, &'a FileContent)>) -> Self {
        let mut merged = Self { objects: BTreeMap::new(), duplicates: Vec::new() };
        for (name, content) in files {
            for manifest in &content.manifests {
                merged.add(name, manifest);
            }
        }
        merged
    }

    fn add(&mut self, file: &'a OsStr, manifest: &'a Manifest) {
        match self.objects.entry(&manifest.object) {
            Entry::Vacant(entry) => {
                let decoded = match &manifest.decoded {
                    Ok(object) => DecodedObject::Valid(object),
                    Err(problem) => {
                        let place = place(file, problem.position);
                        DecodedObject::Malformed(format!("{place}: {}", problem.message))
                    }
                };
                entry.insert(MergedObject { decoded, file, position: manifest.position });
            }
            Entry::Occupied(entry) => {
                let first = entry.get();
                self.duplicates.push(SourceProblem {
                    place: place(file, Some(manifest.position)),
                    message: format!(
                        "{} is also in {}, which the agent uses: remove one of the two",
                        manifest.object,
                        place(first.file, Some(first.position))
                    ),
                });
            }
        }
    }

    /// Events with the complete list of each kind.
    pub(super) fn relist(&self) -> Vec<ReadEvent> {
        let objects = |kind: Kind| {
            let of_kind = self.objects.iter().filter(|(object, _)| object.kind == kind);
            of_kind
                .filter_map(|(_, object)| match object.decoded {
                    DecodedObject::Valid(object) => Some(object.clone()),
                    DecodedObject::Malformed(_) => None,
                })
                .collect()
        };
        let lists = [Kind::Service, Kind::ServiceImport, Kind::EndpointSlice]
            .map(|kind| ReadEvent::Relist { kind, objects: objects(kind) });
        let malformed = self
            .objects
            .iter()
            .filter(|(_, object)| matches!(object.decoded, DecodedObject::Malformed(_)))
            .map(|(key, object)| object.decoded.event(key));
        lists.into_iter().chain(malformed).collect()
    }

    /// The events that lead from `before` to these objects.
    pub(super) fn changes_since(&self, before: &MergedObjects<'_>) -> Vec<ReadEvent> {
        let gone = before
            .objects
            .keys()
            .filter(|object| !self.objects.contains_key(*object))
            .map(|object| ReadEvent::Delete((*object).clone()));
        let changed = self
            .objects
            .iter()
            .filter(|(key, object)| {
                before.objects.get(*key).is_none_or(|before| before.decoded != object.decoded)
            })
            .map(|(key, object)| object.decoded.event(key));
        gone.chain(changed).collect()
    }
}

impl DecodedObject<'_> {
    fn event(&self, object: &ObjectRef) -> ReadEvent {
        match self {
            Self::Valid(object) => ReadEvent::Apply((*object).clone()),
            Self::Malformed(message) => {
                ReadEvent::Malformed { object: object.clone(), message: message.clone() }
            }
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
