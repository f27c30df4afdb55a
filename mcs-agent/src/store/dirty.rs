//! The objects that changed since the rules last evaluated them.

use std::{borrow::Cow, collections::BTreeSet};

use super::snapshot::StoredObject;
use crate::model::{Kind, ObjectKey, ObjectRef};

/// The objects that changed since the rules last evaluated them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirtyObjects {
    /// Whether any ServiceImport changed, but for those in `tiers`.
    pub imports: bool,
    /// The changed EndpointSlices, whether they can be read or not.
    pub slices: BTreeSet<ObjectKey>,
    /// The imports of which nothing but the tiers of source clusters changed.
    pub tiers: BTreeSet<ObjectKey>,
    /// These imports, and those that these slices belong to now, or did before, whether they exist or not.
    pub services: BTreeSet<ObjectKey>,
}

impl DirtyObjects {
    /// With the tiers of these imports.
    pub fn with_tiers<'a>(&self, imports: impl Iterator<Item = &'a ObjectKey>) -> Cow<'_, Self> {
        let mut all = Cow::Borrowed(self);
        for import in imports {
            let dirty = all.to_mut();
            dirty.tiers.insert(import.clone());
            dirty.services.insert(import.clone());
        }
        all
    }

    /// With these imports, as if their slices had changed.
    pub fn with_services(&self, imports: BTreeSet<ObjectKey>) -> Cow<'_, Self> {
        let mut all = Cow::Borrowed(self);
        if !imports.is_empty() {
            all.to_mut().services.extend(imports);
        }
        all
    }

    /// Adds an object that changed, with its versions before and after the change.
    pub(super) fn add(&mut self, object: &ObjectRef, versions: [Option<&StoredObject>; 2]) {
        if object.kind != Kind::EndpointSlice {
            match versions {
                [Some(StoredObject::Import(before)), Some(StoredObject::Import(now))]
                    if before.differs_in_tiers_alone(now) =>
                {
                    self.tiers.insert(object.key.clone());
                    self.services.insert(object.key.clone());
                }
                _ => self.imports = true,
            }
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
