//! The objects that changed since the rules last evaluated them.

use std::collections::BTreeSet;

use super::snapshot::StoredObject;
use crate::model::{Kind, ObjectKey, ObjectRef};

/// The objects that changed since the rules last evaluated them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirtyObjects {
    /// Whether any ServiceImport changed.
    pub imports: bool,
    /// The changed EndpointSlices, whether they can be read or not.
    pub slices: BTreeSet<ObjectKey>,
    /// The imports that these slices belong to now, or did before, whether they exist or not.
    pub services: BTreeSet<ObjectKey>,
}

impl DirtyObjects {
    /// Adds an object that changed, with its versions before and after the change.
    pub(super) fn add(&mut self, object: &ObjectRef, versions: [Option<&StoredObject>; 2]) {
        if object.kind != Kind::EndpointSlice {
            self.imports = true;
            return;
        }
        self.slices.insert(object.key.clone());
        for version in versions.into_iter().flatten() {
            if let StoredObject::Slice(slice) = version {
                self.services.insert(slice.import());
            }
        }
    }
}
