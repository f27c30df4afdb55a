//! The objects that changed since the rules last evaluated them.

use std::collections::BTreeSet;

use super::snapshot::StoredObject;
use crate::model::{Kind, ObjectKey, ObjectRef};

/// The objects that changed since the rules last evaluated them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirtyObjects {
    /// Whether a ServiceImport changed in more than its tiers of source clusters: it can affect every other import.
    pub everything: bool,
    /// The changed EndpointSlices, whether they can be read or not.
    pub slices: BTreeSet<ObjectKey>,
    /// The imports that changed in their tiers of source clusters alone.
    pub tiers: BTreeSet<ObjectKey>,
    /// The imports of `tiers`, and the imports that changed slices belong to or belonged to, whether they exist or not.
    pub imports: BTreeSet<ObjectKey>,
}

impl DirtyObjects {
    /// Adds an object that changed, with its versions before and after the change.
    pub(super) fn add(&mut self, object: &ObjectRef, versions: [Option<&StoredObject>; 2]) {
        if object.kind != Kind::EndpointSlice {
            match versions {
                [Some(StoredObject::Import(before)), Some(StoredObject::Import(now))]
                    if before.differs_in_tiers_alone(now) =>
                {
                    self.tiers.insert(object.key.clone());
                    self.imports.insert(object.key.clone());
                }
                _ => self.everything = true,
            }
            return;
        }
        self.slices.insert(object.key.clone());
        for version in versions.into_iter().flatten() {
            if let StoredObject::Slice(slice) = version {
                self.imports.insert(slice.import());
            }
        }
    }
}
