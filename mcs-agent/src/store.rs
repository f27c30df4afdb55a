//! What the source said last: batches of events go in, immutable snapshots come out.

mod change;
mod dirty;
mod shared;
mod snapshot;

use std::{collections::BTreeSet, sync::Arc};

pub use change::{Change, ChangeKind};
pub use dirty::DirtyObjects;
pub use snapshot::Snapshot;

use crate::model::{EventBatch, Kind, Object, ObjectEvent, ObjectRef, SourceStatus};
use change::Before;
use shared::Shared;
use snapshot::Entry;

/// The current objects of a source. Its only writer is [`ObjectStore::apply`].
#[derive(Debug, Default)]
pub struct ObjectStore {
    objects: Snapshot,
    synced: BTreeSet<Kind>,
    source: SourceStatus,
    dirty: DirtyObjects,
    shared: Shared,
}

impl ObjectStore {
    /// Takes a batch in and tells what is different after it, sorted by object. An object that
    /// comes again as it was is no change.
    pub fn apply(&mut self, batch: EventBatch) -> Vec<Change> {
        let EventBatch { events, status, .. } = batch;
        self.source = status;
        let mut before = Before::default();
        for event in events {
            match event {
                ObjectEvent::Apply(object) => self.put(object, &mut before),
                ObjectEvent::Delete(object) => self.set(object, None, &mut before),
                ObjectEvent::Malformed { object, message } => {
                    self.set(object, Some(Entry::Malformed(message)), &mut before);
                }
                ObjectEvent::Relist { kind, objects } => self.relist(kind, objects, &mut before),
            }
        }
        before.changes(&self.objects)
    }

    /// The current objects. Costs a few reference counts; later batches do not change it.
    pub fn snapshot(&self) -> Snapshot {
        self.objects.clone()
    }

    /// Whether every kind has been listed: only then is what is missing known to be gone.
    pub fn synced(&self) -> bool {
        [Kind::ServiceImport, Kind::EndpointSlice].iter().all(|kind| self.synced.contains(kind))
    }

    /// What batches have touched since it was taken last.
    pub const fn dirty(&self) -> &DirtyObjects {
        &self.dirty
    }

    /// Takes that.
    pub fn take_dirty(&mut self) -> DirtyObjects {
        std::mem::take(&mut self.dirty)
    }

    /// How the source stood after the latest batch.
    pub fn source(&self) -> &SourceStatus {
        &self.source
    }

    fn relist(&mut self, kind: Kind, objects: Vec<Object>, before: &mut Before) {
        let listed: BTreeSet<ObjectRef> = objects.iter().map(Object::reference).collect();
        for object in self.objects.references(kind) {
            if !listed.contains(&object) {
                self.set(object, None, before);
            }
        }
        for object in objects {
            self.put(object, before);
        }
        self.synced.insert(kind);
    }

    fn put(&mut self, mut object: Object, before: &mut Before) {
        if let Object::Slice(slice) = &mut object {
            self.shared.share(slice);
        }
        let reference = object.reference();
        let entry = match object {
            Object::Import(import) => Entry::Import(Arc::new(import)),
            Object::Slice(slice) => Entry::Slice(Arc::new(slice)),
        };
        self.set(reference, Some(entry), before);
    }

    fn set(&mut self, object: ObjectRef, entry: Option<Entry>, before: &mut Before) {
        let previous = self.objects.entry(&object);
        if previous != entry {
            self.dirty.note(&object, [previous.as_ref(), entry.as_ref()]);
            self.objects.set(&object, entry);
            before.record(object, previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        ObjectKey, ServiceImport,
        fixture::{import, key, slice},
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

    fn change(object: ObjectRef, kind: ChangeKind) -> Change {
        Change { object, kind }
    }

    fn slices_of(snapshot: &Snapshot, import: &str) -> Vec<ObjectKey> {
        snapshot.slices(&key(import)).map(|slice| slice.key.clone()).collect()
    }

    #[test]
    fn tells_what_a_batch_changed() {
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
    fn tells_the_net_change_of_a_batch_alone() {
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
    fn a_snapshot_stays_as_it_was_taken() {
        let mut store = ObjectStore::default();
        store.apply(batch([apply_import(import("shop/web"))]));
        let snapshot = store.snapshot();
        store.apply(batch([ObjectEvent::Delete(import_ref("shop/web"))]));
        assert_eq!(snapshot.imports().count(), 1);
        assert_eq!(store.snapshot().imports().count(), 0);
    }

    #[test]
    fn tells_what_was_touched_since_the_last_time() {
        let mut store = ObjectStore::default();
        let slice_of = |service| ObjectEvent::Apply(Object::Slice(slice("shop/a", service)));
        let of = |services: &[&str]| DirtyObjects {
            imports: false,
            slices: [key("shop/a")].into(),
            services: services.iter().copied().map(key).collect(),
        };
        store.apply(batch([slice_of("web")]));
        assert_eq!(store.take_dirty(), of(&["shop/web"]));
        store.apply(batch([slice_of("web")]));
        assert_eq!(store.take_dirty(), DirtyObjects::default());
        store.apply(batch([slice_of("api")]));
        store.apply(batch([malformed(slice_ref("shop/a"))]));
        assert_eq!(store.take_dirty(), of(&["shop/web", "shop/api"]));
        store.apply(batch([malformed(import_ref("shop/web"))]));
        assert_eq!(store.take_dirty(), DirtyObjects { imports: true, ..DirtyObjects::default() });
    }

    #[test]
    fn keeps_how_the_source_stands() {
        let mut store = ObjectStore::default();
        let status =
            SourceStatus { name: "manifests in /etc/mcs".to_owned(), ..Default::default() };
        store.apply(EventBatch { status: status.clone(), ..EventBatch::default() });
        assert_eq!(store.source(), &status);
    }
}
