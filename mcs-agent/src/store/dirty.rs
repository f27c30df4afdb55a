use std::collections::BTreeSet;

use super::snapshot::Entry;
use crate::model::{Kind, ObjectKey, ObjectRef};

/// Where objects are others than before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirtyObjects {
    /// Whether any ServiceImport is.
    pub imports: bool,
    /// The EndpointSlices that are, whether they can be read or not.
    pub slices: BTreeSet<ObjectKey>,
    /// The imports that these belong to, or did, whether they exist or not.
    pub services: BTreeSet<ObjectKey>,
}

impl DirtyObjects {
    /// Notes that an object is another than before, and how it stood and stands.
    pub(super) fn note(&mut self, object: &ObjectRef, entries: [Option<&Entry>; 2]) {
        if object.kind == Kind::ServiceImport {
            self.imports = true;
            return;
        }
        self.slices.insert(object.key.clone());
        for entry in entries.into_iter().flatten() {
            if let Entry::Slice(slice) = entry {
                self.services.insert(slice.import());
            }
        }
    }
}
