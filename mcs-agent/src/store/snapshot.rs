//! An immutable view of all objects.

use std::{collections::BTreeMap, sync::Arc};

use crate::model::{EndpointSlice, Kind, ObjectKey, ObjectRef, ServiceImport};

/// The version of an object in the store.
#[derive(Clone, Debug)]
pub(super) enum StoredObject {
    Import(Arc<ServiceImport>),
    Slice(Arc<EndpointSlice>),
    /// Why it cannot be read.
    Malformed(String),
}

/// Whether the rules have to evaluate an object again. Two versions of a slice that differ only in
/// their trigger time count as equal.
pub(super) fn is_changed(before: Option<&StoredObject>, now: Option<&StoredObject>) -> bool {
    use StoredObject::{Import, Malformed, Slice};
    let is_same = match (before, now) {
        (Some(Import(before)), Some(Import(now))) => before == now,
        (Some(Slice(before)), Some(Slice(now))) => {
            Arc::ptr_eq(before, now) || before.has_same_content(now)
        }
        (Some(Malformed(before)), Some(Malformed(now))) => before == now,
        (None, None) => true,
        _ => false,
    };
    !is_same
}

/// The slices of one import, sorted by name. They share its namespace. Most imports have few, for which a map would
/// take four times the memory.
type SlicesByName = Vec<Arc<EndpointSlice>>;

/// All objects at one moment. A clone shares them with the original.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    imports: Arc<BTreeMap<ObjectKey, Arc<ServiceImport>>>,
    slices: Arc<BTreeMap<ObjectKey, Arc<EndpointSlice>>>,
    /// The same slices by the import they belong to, whether it exists or not.
    by_import: Arc<BTreeMap<ObjectKey, Arc<SlicesByName>>>,
    malformed: Arc<BTreeMap<ObjectRef, String>>,
}

impl Snapshot {
    /// Every ServiceImport that can be read, by namespace and name.
    pub fn imports(&self) -> impl Iterator<Item = &ServiceImport> {
        self.imports.values().map(AsRef::as_ref)
    }

    /// A ServiceImport that can be read.
    pub fn import(&self, key: &ObjectKey) -> Option<&ServiceImport> {
        self.imports.get(key).map(AsRef::as_ref)
    }

    /// The slices of an import, by name.
    pub fn slices(&self, import: &ObjectKey) -> impl Iterator<Item = &EndpointSlice> {
        self.by_import.get(import).into_iter().flat_map(|slices| slices.iter().map(AsRef::as_ref))
    }

    /// A slice that can be read.
    pub fn slice(&self, key: &ObjectKey) -> Option<&EndpointSlice> {
        self.slices.get(key).map(AsRef::as_ref)
    }

    /// Every object that cannot be read, with the reason.
    pub fn malformed(&self) -> impl Iterator<Item = (&ObjectRef, &str)> {
        self.malformed.iter().map(|(object, message)| (object, message.as_str()))
    }

    /// Why an object cannot be read. `None` if it can be read or does not exist.
    pub fn problem(&self, object: &ObjectRef) -> Option<&str> {
        self.malformed.get(object).map(String::as_str)
    }

    /// Every object of a kind, whether it can be read or not.
    pub(super) fn references(&self, kind: Kind) -> Vec<ObjectRef> {
        let readable: Vec<&ObjectKey> = match kind {
            Kind::ServiceImport => self.imports.keys().collect(),
            Kind::EndpointSlice => self.slices.keys().collect(),
            Kind::Service => Vec::new(),
        };
        readable
            .into_iter()
            .map(|key| ObjectRef { kind, key: key.clone() })
            .chain(self.malformed.keys().filter(|object| object.kind == kind).cloned())
            .collect()
    }

    pub(super) fn version(&self, object: &ObjectRef) -> Option<StoredObject> {
        let readable = match object.kind {
            Kind::ServiceImport => self.imports.get(&object.key).cloned().map(StoredObject::Import),
            Kind::EndpointSlice => self.slices.get(&object.key).cloned().map(StoredObject::Slice),
            Kind::Service => None,
        };
        readable.or_else(|| self.malformed.get(object).cloned().map(StoredObject::Malformed))
    }

    /// Replaces the `previous` version of an object, or removes it.
    pub(super) fn set(
        &mut self,
        object: &ObjectRef,
        previous: Option<&StoredObject>,
        version: Option<StoredObject>,
    ) {
        match previous {
            Some(StoredObject::Import(_)) => {
                Arc::make_mut(&mut self.imports).remove(&object.key);
            }
            Some(StoredObject::Slice(slice)) => {
                Arc::make_mut(&mut self.slices).remove(&object.key);
                self.unindex(slice);
            }
            Some(StoredObject::Malformed(_)) => {
                Arc::make_mut(&mut self.malformed).remove(object);
            }
            None => {}
        }
        match version {
            Some(StoredObject::Import(import)) => {
                Arc::make_mut(&mut self.imports).insert(object.key.clone(), import);
            }
            Some(StoredObject::Slice(slice)) => {
                self.index(&slice);
                Arc::make_mut(&mut self.slices).insert(object.key.clone(), slice);
            }
            Some(StoredObject::Malformed(message)) => {
                Arc::make_mut(&mut self.malformed).insert(object.clone(), message);
            }
            None => {}
        }
    }

    fn index(&mut self, slice: &Arc<EndpointSlice>) {
        let of_import = Arc::make_mut(&mut self.by_import).entry(slice.import()).or_default();
        let of_import = Arc::make_mut(of_import);
        match place(of_import, slice) {
            Ok(at) => of_import[at] = Arc::clone(slice),
            Err(at) => of_import.insert(at, Arc::clone(slice)),
        }
    }

    fn unindex(&mut self, slice: &EndpointSlice) {
        let by_import = Arc::make_mut(&mut self.by_import);
        if let Some(of_import) = by_import.get_mut(&slice.import()) {
            let slices = Arc::make_mut(of_import);
            if let Ok(at) = place(slices, slice) {
                slices.remove(at);
            }
            if slices.is_empty() {
                by_import.remove(&slice.import());
            }
        }
    }
}

/// The index of a slice in the sorted slices of its import, or where to insert it.
fn place(slices: &[Arc<EndpointSlice>], slice: &EndpointSlice) -> Result<usize, usize> {
    slices.binary_search_by(|one| one.key.name.cmp(&slice.key.name))
}
