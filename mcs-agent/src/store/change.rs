//! What one batch changes.

use std::collections::BTreeMap;

use super::snapshot::{Snapshot, StoredObject, is_changed};
use crate::model::ObjectRef;

/// The change of one object by a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The object, whether it still exists or not, with its kind in the source: an import can be an adopted Service.
    pub object: ObjectRef,
    /// How it changed.
    pub kind: ChangeKind,
}

/// How an object changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// It can be read now. Before, it did not exist or could not be read.
    Added,
    /// Its content changed.
    Updated,
    /// It does not exist any more.
    Removed,
    /// It cannot be read now, or the reason has changed.
    Malformed,
}

/// The versions that a batch replaces.
#[derive(Default)]
pub(super) struct ReplacedObjects(BTreeMap<ObjectRef, Option<StoredObject>>);

impl ReplacedObjects {
    /// Records the version of an object before the batch. Later versions do not count.
    pub(super) fn record(&mut self, object: ObjectRef, version: Option<StoredObject>) {
        self.0.entry(object).or_insert(version);
    }

    /// The net changes of the batch.
    pub(super) fn changes(self, now: &Snapshot) -> Vec<Change> {
        self.0
            .into_iter()
            .filter_map(|(mut object, before)| {
                let now = now.version(&object);
                if !is_changed(before.as_ref(), now) {
                    return None;
                }
                if let Some(StoredObject::Import(import)) = now.or(before.as_ref()) {
                    object.kind = import.kind;
                }
                let kind = match (before, now) {
                    (_, None) => ChangeKind::Removed,
                    (_, Some(StoredObject::Malformed(_))) => ChangeKind::Malformed,
                    (None | Some(StoredObject::Malformed(_)), _) => ChangeKind::Added,
                    _ => ChangeKind::Updated,
                };
                Some(Change { object, kind })
            })
            .collect()
    }
}
