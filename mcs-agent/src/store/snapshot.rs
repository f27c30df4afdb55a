use std::{collections::BTreeMap, sync::Arc};

use crate::model::{EndpointSlice, Kind, ObjectKey, ObjectRef, ServiceImport};

/// How an object stands.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Entry {
    Import(Arc<ServiceImport>),
    Slice(Arc<EndpointSlice>),
    /// What is wrong with it.
    Malformed(String),
}

/// The slices of one import, by name: they share its namespace.
type Slices = BTreeMap<Arc<str>, Arc<EndpointSlice>>;

/// All objects at one moment. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    imports: Arc<BTreeMap<ObjectKey, Arc<ServiceImport>>>,
    slices: Arc<BTreeMap<ObjectKey, Arc<EndpointSlice>>>,
    /// `slices` again, by the import they belong to, whether it exists or not.
    by_import: Arc<BTreeMap<ObjectKey, Arc<Slices>>>,
    malformed: Arc<BTreeMap<ObjectRef, String>>,
}

impl Snapshot {
    /// Every ServiceImport that can be read, by namespace and name.
    pub fn imports(&self) -> impl Iterator<Item = &ServiceImport> {
        self.imports.values().map(AsRef::as_ref)
    }

    /// A ServiceImport, unless it cannot be read.
    pub fn import(&self, key: &ObjectKey) -> Option<&ServiceImport> {
        self.imports.get(key).map(AsRef::as_ref)
    }

    /// The slices of an import, by name.
    pub fn slices(&self, import: &ObjectKey) -> impl Iterator<Item = &EndpointSlice> {
        self.by_import.get(import).into_iter().flat_map(|slices| slices.values().map(AsRef::as_ref))
    }

    /// A slice, unless it cannot be read.
    pub fn slice(&self, key: &ObjectKey) -> Option<&EndpointSlice> {
        self.slices.get(key).map(AsRef::as_ref)
    }

    /// Every object that cannot be read, and what is wrong with it.
    pub fn malformed(&self) -> impl Iterator<Item = (&ObjectRef, &str)> {
        self.malformed.iter().map(|(object, message)| (object, message.as_str()))
    }

    /// What is wrong with an object, if it cannot be read.
    pub fn problem(&self, object: &ObjectRef) -> Option<&str> {
        self.malformed.get(object).map(String::as_str)
    }

    /// Every object of a kind, whether it can be read or not.
    pub(super) fn references(&self, kind: Kind) -> Vec<ObjectRef> {
        let readable: Vec<&ObjectKey> = match kind {
            Kind::ServiceImport => self.imports.keys().collect(),
            Kind::EndpointSlice => self.slices.keys().collect(),
        };
        readable
            .into_iter()
            .map(|key| ObjectRef { kind, key: key.clone() })
            .chain(self.malformed.keys().filter(|object| object.kind == kind).cloned())
            .collect()
    }

    pub(super) fn entry(&self, object: &ObjectRef) -> Option<Entry> {
        let readable = match object.kind {
            Kind::ServiceImport => self.imports.get(&object.key).cloned().map(Entry::Import),
            Kind::EndpointSlice => self.slices.get(&object.key).cloned().map(Entry::Slice),
        };
        readable.or_else(|| self.malformed.get(object).cloned().map(Entry::Malformed))
    }

    /// Replaces whatever stood for the object.
    pub(super) fn set(&mut self, object: &ObjectRef, entry: Option<Entry>) {
        match self.entry(object) {
            Some(Entry::Import(_)) => {
                Arc::make_mut(&mut self.imports).remove(&object.key);
            }
            Some(Entry::Slice(slice)) => {
                Arc::make_mut(&mut self.slices).remove(&object.key);
                self.unindex(&slice);
            }
            Some(Entry::Malformed(_)) => {
                Arc::make_mut(&mut self.malformed).remove(object);
            }
            None => {}
        }
        match entry {
            Some(Entry::Import(import)) => {
                Arc::make_mut(&mut self.imports).insert(object.key.clone(), import);
            }
            Some(Entry::Slice(slice)) => {
                self.index(&slice);
                Arc::make_mut(&mut self.slices).insert(object.key.clone(), slice);
            }
            Some(Entry::Malformed(message)) => {
                Arc::make_mut(&mut self.malformed).insert(object.clone(), message);
            }
            None => {}
        }
    }

    fn index(&mut self, slice: &Arc<EndpointSlice>) {
        let of_import = Arc::make_mut(&mut self.by_import).entry(slice.import()).or_default();
        Arc::make_mut(of_import).insert(slice.key.name.clone(), slice.clone());
    }

    fn unindex(&mut self, slice: &EndpointSlice) {
        let by_import = Arc::make_mut(&mut self.by_import);
        if let Some(of_import) = by_import.get_mut(&slice.import()) {
            Arc::make_mut(of_import).remove(&slice.key.name);
            if of_import.is_empty() {
                by_import.remove(&slice.import());
            }
        }
    }
}
