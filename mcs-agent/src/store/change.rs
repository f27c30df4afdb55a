use std::collections::BTreeMap;

use super::snapshot::{Entry, Snapshot};
use crate::model::ObjectRef;

/// What a batch did to an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which object.
    pub object: ObjectRef,
    /// What became of it.
    pub kind: ChangeKind,
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// It can be read now, and could not before.
    Added,
    /// It says something else.
    Updated,
    /// It is gone.
    Removed,
    /// It is there and cannot be read, or not for the reason told before.
    Malformed,
}

/// How the objects that a batch touches stood before it.
#[derive(Default)]
pub(super) struct Before(BTreeMap<ObjectRef, Option<Entry>>);

impl Before {
    /// Notes how an object stood. Only its first time counts.
    pub(super) fn record(&mut self, object: ObjectRef, entry: Option<Entry>) {
        self.0.entry(object).or_insert(entry);
    }

    /// What is different now.
    pub(super) fn changes(self, now: &Snapshot) -> Vec<Change> {
        self.0
            .into_iter()
            .filter_map(|(object, before)| {
                let now = now.entry(&object);
                if before == now {
                    return None;
                }
                let kind = match (before, now) {
                    (_, None) => ChangeKind::Removed,
                    (_, Some(Entry::Malformed(_))) => ChangeKind::Malformed,
                    (None | Some(Entry::Malformed(_)), _) => ChangeKind::Added,
                    _ => ChangeKind::Updated,
                };
                Some(Change { object, kind })
            })
            .collect()
    }
}
