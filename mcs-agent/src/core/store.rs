//! The latest version of every object that was read. Batches of events go in, immutable snapshots come
//! out.

mod snapshot;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::Hash,
    sync::Arc,
};

pub use self::snapshot::Snapshot;
use self::snapshot::{StoredObject, is_changed};
use super::model::{
    EndpointSlice, EventBatch, Kind, Location, Object, ObjectEvent, ObjectKey, ObjectRef,
    ServiceImport, SourceStatus, TopologyHints,
};

/// The objects of a source. Only [`ObjectStore::apply`] changes them.
#[derive(Debug, Default)]
pub struct ObjectStore {
    objects: Snapshot,
    synced: BTreeSet<Kind>,
    source: Arc<SourceStatus>,
    dirty: DirtyObjects,
    interner: Interner,
}

impl ObjectStore {
    /// Applies a batch. Returns its net changes, sorted by object. The same content again is no
    /// change.
    pub fn apply(&mut self, batch: EventBatch) -> Vec<ObjectChange> {
        let EventBatch { events, status, .. } = batch;
        self.source = status;
        let mut replaced = ReplacedObjects::default();
        for event in events {
            match event {
                ObjectEvent::Apply(object) => self.put(object, &mut replaced),
                ObjectEvent::Delete(object) => self.set(object, None, &mut replaced),
                ObjectEvent::Malformed { object, message } => {
                    self.set(object, Some(StoredObject::Malformed(message)), &mut replaced);
                }
                ObjectEvent::Relist { kind, objects } => self.relist(kind, objects, &mut replaced),
            }
        }
        replaced.changes(&self.objects)
    }

    /// The objects now. Later batches do not change the snapshot. It costs a few reference counts.
    pub fn snapshot(&self) -> Snapshot {
        self.objects.clone()
    }

    /// Whether every kind was listed completely. Before, a missing object can still exist.
    pub fn synced(&self) -> bool {
        [Kind::ServiceImport, Kind::EndpointSlice].iter().all(|kind| self.synced.contains(kind))
    }

    /// The objects that changed since [`ObjectStore::take_dirty`].
    pub const fn dirty(&self) -> &DirtyObjects {
        &self.dirty
    }

    /// Returns these objects and starts to collect again.
    pub fn take_dirty(&mut self) -> DirtyObjects {
        std::mem::take(&mut self.dirty)
    }

    /// The status of the source with the latest batch.
    pub const fn source(&self) -> &Arc<SourceStatus> {
        &self.source
    }

    fn relist(&mut self, kind: Kind, objects: Vec<Object>, replaced: &mut ReplacedObjects) {
        let known = self.objects.references(kind);
        if !known.is_empty() {
            let listed: BTreeSet<ObjectRef> = objects.iter().map(Object::reference).collect();
            for object in known.into_iter().filter(|object| !listed.contains(object)) {
                self.set(object, None, replaced);
            }
        }
        for object in objects {
            self.put(object, replaced);
        }
        self.synced.insert(kind);
    }

    fn put(&mut self, mut object: Object, replaced: &mut ReplacedObjects) {
        self.interner.intern(&mut object);
        let reference = object.reference();
        let version = match object {
            Object::Import(import) => StoredObject::Import(Arc::new(import)),
            Object::Slice(slice) => StoredObject::Slice(Arc::new(slice)),
        };
        self.set(reference, Some(version), replaced);
    }

    fn set(
        &mut self,
        object: ObjectRef,
        version: Option<StoredObject>,
        replaced: &mut ReplacedObjects,
    ) {
        let previous = self.objects.version(&object);
        if is_changed(previous, version.as_ref()) {
            self.dirty.add(&object, [previous, version.as_ref()]);
            let previous = self.objects.set(&object, version);
            replaced.record(object, previous);
        }
    }
}

/// The change of one object by a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectChange {
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
struct ReplacedObjects(BTreeMap<ObjectRef, Option<StoredObject>>);

impl ReplacedObjects {
    /// Records the version of an object before the batch. Later versions do not count.
    fn record(&mut self, object: ObjectRef, version: Option<StoredObject>) {
        self.0.entry(object).or_insert(version);
    }

    /// The net changes of the batch.
    fn changes(self, now: &Snapshot) -> Vec<ObjectChange> {
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
                Some(ObjectChange { object, kind })
            })
            .collect()
    }
}

/// The objects that changed since the rules last evaluated them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirtyObjects {
    /// The changed ServiceImports, whether they exist and can be read or not.
    pub imports: BTreeSet<ObjectKey>,
    /// The changed EndpointSlices, whether they can be read or not.
    pub slices: BTreeSet<ObjectKey>,
    /// The imports whose backends are to be selected again, whether they exist or not: these slices belong to them or
    /// belonged to them.
    pub reselected: BTreeSet<ObjectKey>,
}

impl DirtyObjects {
    /// Adds an object that changed, with its versions before and after the change.
    fn add(&mut self, object: &ObjectRef, versions: [Option<&StoredObject>; 2]) {
        if object.kind != Kind::EndpointSlice {
            self.imports.insert(object.key.clone());
            return;
        }
        self.slices.insert(object.key.clone());
        for version in versions.into_iter().flatten() {
            if let StoredObject::Slice(slice) = version {
                self.reselected.insert(slice.import());
            }
        }
    }
}

/// The names of clusters, namespaces and services, the locations and the hints, that objects repeat.
#[derive(Debug, Default)]
struct Interner {
    names: Pool<str>,
    locations: Pool<Location>,
    hints: Pool<TopologyHints>,
}

impl Interner {
    /// Replaces the names, locations and hints of an object with equal ones that are known already.
    fn intern(&mut self, object: &mut Object) {
        match object {
            Object::Import(import) => self.intern_import(import),
            Object::Slice(slice) => self.intern_slice(slice),
        }
    }

    fn intern_import(&mut self, import: &mut ServiceImport) {
        self.names.intern(&mut import.key.namespace);
        self.names.intern(&mut import.key.name);
        import.clusters.iter_mut().for_each(|cluster| self.names.intern(cluster));
        if let Some(Ok(tiers)) = import.tiers.as_deref_mut() {
            let names = tiers.0.iter_mut().flat_map(|tier| &mut tier.clusters);
            names.for_each(|cluster| self.names.intern(cluster));
        }
    }

    fn intern_slice(&mut self, slice: &mut EndpointSlice) {
        self.names.intern(&mut slice.key.namespace);
        self.names.intern(&mut slice.service);
        self.names.intern(&mut slice.source_cluster);
        for endpoint in &mut slice.endpoints {
            if let Some(location) = &mut endpoint.location {
                self.locations.intern(location);
            }
            if let Some(hints) = &mut endpoint.hints {
                self.hints.intern(hints);
            }
        }
    }
}

/// Known values. The pool can have values that no object uses any more.
#[derive(Debug)]
struct Pool<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// With this many values the pool drops unused ones.
    bound: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), bound: 1024 }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn intern(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.values.get(value) {
            value.clone_from(known);
            return;
        }
        if self.values.len() >= self.bound {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.bound = (2 * self.values.len()).max(self.bound);
        }
        self.values.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::core::model::{
        EndpointSlice, ServiceImport,
        fixture::{endpoint, import, key, slice},
    };

    fn batch(events: impl Into<Vec<ObjectEvent>>) -> EventBatch {
        EventBatch { events: events.into(), ..EventBatch::default() }
    }

    fn apply_import(import: ServiceImport) -> ObjectEvent {
        ObjectEvent::Apply(Object::Import(import))
    }

    fn malformed(object: ObjectRef) -> ObjectEvent {
        ObjectEvent::Malformed { object, message: "spec: not a map".to_owned() }
    }

    fn import_ref(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::ServiceImport, key: key(name) }
    }

    fn slice_ref(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::EndpointSlice, key: key(name) }
    }

    fn change(object: ObjectRef, kind: ChangeKind) -> ObjectChange {
        ObjectChange { object, kind }
    }

    fn slices_of(snapshot: &Snapshot, import: &str) -> Vec<ObjectKey> {
        snapshot.slices(&key(import)).map(|slice| slice.key.clone()).collect()
    }

    #[test]
    fn changes_name_an_adopted_service() {
        let mut store = ObjectStore::default();
        let service = || ServiceImport { kind: Kind::Service, ..import("shop/web") };
        let named = || ObjectRef { kind: Kind::Service, key: key("shop/web") };
        let changes = store.apply(batch([apply_import(service())]));
        assert_eq!(changes, [change(named(), ChangeKind::Added)]);
        let changes = store.apply(batch([ObjectEvent::Delete(import_ref("shop/web"))]));
        assert_eq!(changes, [change(named(), ChangeKind::Removed)]);
    }

    #[test]
    fn reports_what_a_batch_changed() {
        let mut store = ObjectStore::default();
        let web = || import("shop/web").ip("10.0.0.1");
        let object = || import_ref("shop/web");

        assert_eq!(
            store.apply(batch([apply_import(web())])),
            [change(object(), ChangeKind::Added)]
        );
        assert_eq!(store.apply(batch([apply_import(web())])), []);
        assert_eq!(
            store.apply(batch([apply_import(web().ip("10.0.0.2"))])),
            [change(object(), ChangeKind::Updated)]
        );
        assert_eq!(
            store.apply(batch([malformed(object())])),
            [change(object(), ChangeKind::Malformed)]
        );
        assert_eq!(
            store.apply(batch([apply_import(web())])),
            [change(object(), ChangeKind::Added)]
        );
        assert_eq!(
            store.apply(batch([ObjectEvent::Delete(object())])),
            [change(object(), ChangeKind::Removed)]
        );
        assert_eq!(store.apply(batch([ObjectEvent::Delete(object())])), []);
    }

    #[test]
    fn reports_only_the_net_change_of_a_batch() {
        let mut store = ObjectStore::default();
        let there_and_gone =
            [apply_import(import("shop/web")), ObjectEvent::Delete(import_ref("shop/web"))];
        assert_eq!(store.apply(batch(there_and_gone)), []);

        store.apply(batch([malformed(import_ref("shop/web"))]));
        let relisted = [
            ObjectEvent::Relist { kind: Kind::ServiceImport, objects: vec![] },
            malformed(import_ref("shop/web")),
        ];
        assert_eq!(store.apply(batch(relisted)), []);
    }

    #[test]
    fn relist_drops_what_it_does_not_name_of_its_kind() {
        let mut store = ObjectStore::default();
        store.apply(batch([
            apply_import(import("shop/kept")),
            apply_import(import("shop/gone")),
            malformed(import_ref("shop/broken")),
            malformed(slice_ref("shop/broken")),
            ObjectEvent::Apply(Object::Slice(slice("shop/kept-a", "kept"))),
        ]));
        let changes = store.apply(batch([ObjectEvent::Relist {
            kind: Kind::ServiceImport,
            objects: vec![Object::Import(import("shop/kept"))],
        }]));

        assert_eq!(
            changes,
            [
                change(import_ref("shop/broken"), ChangeKind::Removed),
                change(import_ref("shop/gone"), ChangeKind::Removed),
            ]
        );
        let snapshot = store.snapshot();
        assert_eq!(
            snapshot.imports().map(|i| i.key.clone()).collect::<Vec<_>>(),
            [key("shop/kept")]
        );
        assert_eq!(slices_of(&snapshot, "shop/kept"), [key("shop/kept-a")]);
        assert_eq!(
            snapshot.malformed().map(|(object, _)| object.clone()).collect::<Vec<_>>(),
            [slice_ref("shop/broken")]
        );
    }

    #[test]
    fn is_synced_once_every_kind_was_listed() {
        let mut store = ObjectStore::default();
        store.apply(batch([apply_import(import("shop/web"))]));
        assert!(!store.synced());
        for (kind, synced) in [(Kind::EndpointSlice, false), (Kind::ServiceImport, true)] {
            store.apply(batch([ObjectEvent::Relist { kind, objects: vec![] }]));
            assert_eq!(store.synced(), synced, "after {kind}");
        }
    }

    #[test]
    fn an_object_is_either_readable_or_malformed() {
        let mut store = ObjectStore::default();
        let web = || ObjectEvent::Apply(Object::Slice(slice("shop/web-a", "web")));
        store.apply(batch([web(), malformed(slice_ref("shop/web-a"))]));
        assert_eq!(slices_of(&store.snapshot(), "shop/web"), []);
        assert_eq!(
            store.snapshot().malformed().collect::<Vec<_>>(),
            [(&slice_ref("shop/web-a"), "spec: not a map")]
        );

        store.apply(batch([web()]));
        assert_eq!(slices_of(&store.snapshot(), "shop/web"), [key("shop/web-a")]);
        assert_eq!(store.snapshot().malformed().count(), 0);
    }

    #[test]
    fn a_slice_that_changes_its_service_moves() {
        let mut store = ObjectStore::default();
        for service in ["web", "api"] {
            store.apply(batch([ObjectEvent::Apply(Object::Slice(slice("shop/a", service)))]));
        }
        assert_eq!(slices_of(&store.snapshot(), "shop/web"), []);
        assert_eq!(slices_of(&store.snapshot(), "shop/api"), [key("shop/a")]);
    }

    /// Controllers write the trigger time at every update. It must not cause a round of the rules.
    #[test]
    fn another_trigger_time_alone_is_no_change() {
        let mut store = ObjectStore::default();
        let at = |seconds| EndpointSlice {
            trigger_time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            ..slice("shop/a", "web")
        };
        let mut apply = |slice: EndpointSlice| {
            let changes = store.apply(batch([ObjectEvent::Apply(Object::Slice(slice))]));
            let stored = store.snapshot().slice(&key("shop/a")).and_then(|one| one.trigger_time);
            (changes, store.take_dirty(), stored)
        };
        let (changes, _, stored) = apply(at(1));
        assert_eq!(changes, [change(slice_ref("shop/a"), ChangeKind::Added)]);
        assert_eq!(stored, at(1).trigger_time);
        assert_eq!(apply(at(2)), (vec![], DirtyObjects::default(), at(1).trigger_time));

        let (changes, dirty, stored) = apply(at(3).address("10.1.0.1"));
        assert_eq!(changes, [change(slice_ref("shop/a"), ChangeKind::Updated)]);
        assert_eq!(dirty.slices, [key("shop/a")].into());
        assert_eq!(stored, at(3).trigger_time);
    }

    #[test]
    fn slices_belong_to_imports_of_their_namespace() {
        let mut store = ObjectStore::default();
        store.apply(batch(
            ["shop/b", "other/c", "shop/a"]
                .map(|name| ObjectEvent::Apply(Object::Slice(slice(name, "web")))),
        ));
        assert_eq!(slices_of(&store.snapshot(), "shop/web"), [key("shop/a"), key("shop/b")]);
    }

    #[test]
    fn later_batches_do_not_change_a_snapshot() {
        let mut store = ObjectStore::default();
        store.apply(batch([apply_import(import("shop/web"))]));
        let snapshot = store.snapshot();
        store.apply(batch([ObjectEvent::Delete(import_ref("shop/web"))]));
        assert_eq!(snapshot.imports().count(), 1);
        assert_eq!(store.snapshot().imports().count(), 0);
    }

    #[test]
    fn collects_the_dirty_objects_until_they_are_taken() {
        let mut store = ObjectStore::default();
        let slice_of = |service| ObjectEvent::Apply(Object::Slice(slice("shop/a", service)));
        let of = |imports: &[&str]| DirtyObjects {
            slices: [key("shop/a")].into(),
            reselected: imports.iter().copied().map(key).collect(),
            ..DirtyObjects::default()
        };
        store.apply(batch([slice_of("web")]));
        assert_eq!(store.take_dirty(), of(&["shop/web"]));
        store.apply(batch([slice_of("web")]));
        assert_eq!(store.take_dirty(), DirtyObjects::default());
        store.apply(batch([slice_of("api")]));
        store.apply(batch([malformed(slice_ref("shop/a"))]));
        assert_eq!(store.take_dirty(), of(&["shop/web", "shop/api"]));
        store.apply(batch([malformed(import_ref("shop/web"))]));
        assert_eq!(
            store.take_dirty(),
            DirtyObjects { imports: [key("shop/web")].into(), ..DirtyObjects::default() }
        );
    }

    #[test]
    fn keeps_the_status_of_the_source() {
        let mut store = ObjectStore::default();
        let name = "manifests in /etc/mcs".to_owned();
        let status = Arc::new(SourceStatus { name, ..SourceStatus::default() });
        store.apply(EventBatch { status: status.clone(), ..EventBatch::default() });
        assert_eq!(store.source(), &status);
    }

    #[test]
    fn slices_share_equal_names_and_hints() {
        let mut interner = Interner::default();
        let [one, other] = [1, 2].map(|_| {
            let endpoint = endpoint("10.1.0.1").node("n1").for_zone("z1");
            let mut slice = slice("shop/web", "web").endpoint(endpoint);
            interner.intern_slice(&mut slice);
            slice
        });
        assert_eq!(one, other);
        assert!(Arc::ptr_eq(&one.source_cluster, &other.source_cluster));
        let [one, other] = [&one, &other].map(|slice| &slice.endpoints[0]);
        assert!(
            one.location
                .as_ref()
                .zip(other.location.as_ref())
                .is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        );
        assert!(
            one.hints
                .as_ref()
                .zip(other.hints.as_ref())
                .is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        );
    }

    #[test]
    fn the_pool_drops_unused_values() {
        let mut pool = Pool::<str>::default();
        let mut kept: Vec<Arc<str>> = Vec::new();
        for number in 0..100_000 {
            let mut name = Arc::from(format!("node-{number}"));
            pool.intern(&mut name);
            if number % 100 == 0 {
                kept.push(name);
            }
        }
        assert!(pool.values.len() <= 2 * kept.len().max(1024), "{}", pool.values.len());
        for name in &kept {
            assert!(pool.values.contains(name));
        }
    }
}
