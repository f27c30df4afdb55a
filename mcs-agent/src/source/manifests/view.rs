use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::OsStr,
};

use super::content::{Content, Manifest, Position};
use crate::model::{Kind, Object, ObjectEvent, ObjectRef, SourceProblem};

/// The objects of all files together: of several manifests of one object the first is in force.
pub(super) struct View<'a> {
    objects: BTreeMap<&'a ObjectRef, Held<'a>>,
    /// The manifests that are not in force.
    pub(super) duplicates: Vec<SourceProblem>,
}

struct Held<'a> {
    outcome: Outcome<'a>,
    file: &'a OsStr,
    position: Position,
}

#[derive(PartialEq)]
enum Outcome<'a> {
    Object(&'a Object),
    Malformed(String),
}

impl<'a> View<'a> {
    /// The objects of these files, which come in the order of their names.
    pub(super) fn of(files: impl Iterator<Item = (&'a OsStr, &'a Content)>) -> Self {
        let mut view = Self { objects: BTreeMap::new(), duplicates: Vec::new() };
        for (name, content) in files {
            for manifest in &content.manifests {
                view.add(name, manifest);
            }
        }
        view
    }

    fn add(&mut self, file: &'a OsStr, manifest: &'a Manifest) {
        match self.objects.entry(&manifest.object) {
            Entry::Vacant(entry) => {
                let outcome = match &manifest.outcome {
                    Ok(object) => Outcome::Object(object),
                    Err(problem) => {
                        let place = place(file, problem.position);
                        Outcome::Malformed(format!("{place}: {}", problem.message))
                    }
                };
                entry.insert(Held { outcome, file, position: manifest.position });
            }
            Entry::Occupied(entry) => {
                let first = entry.get();
                self.duplicates.push(SourceProblem {
                    place: place(file, Some(manifest.position)),
                    message: format!(
                        "{} is also in {}, which is in force: remove one of the two",
                        manifest.object,
                        place(first.file, Some(first.position))
                    ),
                });
            }
        }
    }

    /// Both kinds, complete.
    pub(super) fn relist(&self) -> Vec<ObjectEvent> {
        let objects = |kind: Kind| {
            let of_kind = self.objects.iter().filter(|(object, _)| object.kind == kind);
            of_kind
                .filter_map(|(_, held)| match held.outcome {
                    Outcome::Object(object) => Some(object.clone()),
                    Outcome::Malformed(_) => None,
                })
                .collect()
        };
        let lists = [Kind::ServiceImport, Kind::EndpointSlice]
            .map(|kind| ObjectEvent::Relist { kind, objects: objects(kind) });
        let malformed = self
            .objects
            .iter()
            .filter(|(_, held)| matches!(held.outcome, Outcome::Malformed(_)))
            .map(|(object, held)| held.outcome.event(object));
        lists.into_iter().chain(malformed).collect()
    }

    /// What leads from `before` to here.
    pub(super) fn changes_since(&self, before: &View<'_>) -> Vec<ObjectEvent> {
        let gone = before
            .objects
            .keys()
            .filter(|object| !self.objects.contains_key(*object))
            .map(|object| ObjectEvent::Delete((*object).clone()));
        let changed = self
            .objects
            .iter()
            .filter(|(object, held)| {
                before.objects.get(*object).is_none_or(|before| before.outcome != held.outcome)
            })
            .map(|(object, held)| held.outcome.event(object));
        gone.chain(changed).collect()
    }
}

impl Outcome<'_> {
    fn event(&self, object: &ObjectRef) -> ObjectEvent {
        match self {
            Self::Object(object) => ObjectEvent::Apply((*object).clone()),
            Self::Malformed(message) => {
                ObjectEvent::Malformed { object: object.clone(), message: message.clone() }
            }
        }
    }
}

/// `web.yaml, document 2, line 14`.
pub(super) fn place(file: &OsStr, position: Option<Position>) -> String {
    match position {
        Some(position) => format!("{}, {position}", file.display()),
        None => file.display().to_string(),
    }
}
