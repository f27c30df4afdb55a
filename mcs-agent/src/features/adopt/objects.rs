//! Keeps what other controllers have written, and says how the store's objects change with it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Controller, Coverage, ForeignImport, SortedObject, antrea, group::Group};
use crate::core::model::{Kind, Object, ObjectEvent, ObjectKey, ObjectRef};

/// A list of objects. The lists of a source can overlap, and each is complete by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum List {
    /// The ServiceImports of the group of `--import-group`, and the slices with the label of an import; everything in a
    /// directory of manifests.
    Main,
    /// The ServiceImports of another group.
    OtherImports,
    /// Services.
    Services,
    /// The slices that other controllers write.
    Slices,
    /// The slices of the own cluster, for the Services of [`Adopter::local_services`].
    LocalSlices,
}

/// A change of a list.
pub(super) type SortedEvent = ObjectEvent<SortedObject>;

/// An object in a list.
type Id = (ObjectRef, List);

/// What an object of the store is made of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Origin {
    /// The object of this list, as it is.
    Object(List),
    /// The objects that belong to this Service.
    Service(ObjectKey),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Version<T> {
    Valid(T),
    Malformed(String),
}

/// Turns the events of lists into events of the store.
///
/// Objects of KEP-1645 pass. The objects of the controllers of `--adopt` are kept here, with those of the store that
/// follow from them. If an object comes from several lists, that of KEP-1645 is used.
#[derive(Debug)]
pub(super) struct Adopter {
    pub(super) controllers: BTreeSet<Controller>,
    /// The Services whose local slices have been listed.
    with_local_slices: Coverage,
    /// The objects that pass.
    passed: BTreeSet<ObjectRef>,
    kept: BTreeMap<Id, Version<SortedObject>>,
    /// The kept objects by the Service that they belong to.
    groups: BTreeMap<ObjectKey, BTreeSet<Id>>,
    /// The objects for the store that follow from the kept ones. The first one of each is in force.
    results: BTreeMap<ObjectRef, BTreeMap<Origin, Version<Object>>>,
    /// The results that each Service has.
    of_group: BTreeMap<ObjectKey, BTreeSet<ObjectRef>>,
}

/// What has to be evaluated again after changes of kept objects.
#[derive(Default)]
struct Touched {
    groups: BTreeSet<ObjectKey>,
    results: BTreeSet<ObjectRef>,
}

impl Adopter {
    /// Adopts the objects of these controllers. One list has the slices of the Services of `with_local_slices` from the
    /// start.
    pub(super) fn new(controllers: BTreeSet<Controller>, with_local_slices: Coverage) -> Self {
        Self {
            controllers,
            with_local_slices,
            passed: BTreeSet::new(),
            kept: BTreeMap::new(),
            groups: BTreeMap::new(),
            results: BTreeMap::new(),
            of_group: BTreeMap::new(),
        }
    }

    /// The names of the Services whose local slices are needed.
    pub(super) fn local_services(&self) -> BTreeSet<String> {
        // The list of local slices can have those of many other Services.
        let services = self.kept.iter().filter_map(|((object, list), version)| {
            let is_service = *list == List::Services && matches!(version, Version::Valid(_));
            is_service.then_some(&object.key)
        });
        let needed = services.filter(|key| self.group(key).has_dispatched_slices());
        needed.map(|key| key.name.to_string()).collect()
    }

    /// The local slices of these Services, and of no others, have been listed.
    pub(super) fn set_with_local_slices(&mut self, services: &Coverage) -> Vec<ObjectEvent> {
        let before = std::mem::replace(&mut self.with_local_slices, services.clone());
        let groups = self.groups.keys();
        let groups = groups.filter(|key| before.has(&key.name) != services.has(&key.name));
        let touched = Touched { groups: groups.cloned().collect(), ..Touched::default() };
        self.settle(touched)
    }

    /// Takes an event of a list. Returns the events for the store.
    pub(super) fn take(&mut self, list: List, event: SortedEvent) -> Vec<ObjectEvent> {
        match event {
            SortedEvent::Apply(object) => match self.recognise(object) {
                SortedObject::Standard(object) if list == List::Main => self.pass(object),
                object => {
                    let reference = object.reference();
                    let mut touched = self.keep((reference.clone(), list), Version::Valid(object));
                    if list == List::Main && self.passed.remove(&reference) {
                        touched.results.insert(reference);
                    }
                    self.settle(touched)
                }
            },
            SortedEvent::Delete(reference) => {
                let mut touched = self.forget(&(reference.clone(), list));
                if list == List::Main && self.passed.remove(&reference) {
                    touched.of_import(&reference);
                    touched.results.insert(reference);
                }
                self.settle(touched)
            }
            SortedEvent::Malformed { object, message }
                if list == List::Main && object.kind != Kind::Service =>
            {
                let mut touched = self.forget(&(object.clone(), list));
                touched.of_import(&object);
                self.passed.insert(object.clone());
                let mut events = self.settle(touched);
                events.push(ObjectEvent::Malformed { object, message });
                events
            }
            SortedEvent::Malformed { object, message } => {
                let touched = self.keep((object, list), Version::Malformed(message));
                self.settle(touched)
            }
            SortedEvent::Relist { kind, objects } => self.relist(list, kind, objects),
        }
    }

    fn relist(&mut self, list: List, kind: Kind, objects: Vec<SortedObject>) -> Vec<ObjectEvent> {
        let mut touched = Touched::default();
        let mut passing = Vec::new();
        let mut listed = BTreeSet::new();
        for object in objects {
            match self.recognise(object) {
                SortedObject::Standard(object) if list == List::Main => passing.push(object),
                object => {
                    let reference = object.reference();
                    listed.insert(reference.clone());
                    touched.extend(self.keep((reference, list), Version::Valid(object)));
                }
            }
        }
        let is_gone = |(reference, of): &&Id| {
            *of == list && reference.kind == kind && !listed.contains(reference)
        };
        let gone: Vec<Id> = self.kept.keys().filter(is_gone).cloned().collect();
        for id in gone {
            touched.extend(self.forget(&id));
        }
        if list != List::Main || kind == Kind::Service {
            return self.settle(touched);
        }
        let before: Vec<ObjectRef> =
            self.passed.iter().filter(|reference| reference.kind == kind).cloned().collect();
        for reference in &before {
            self.passed.remove(reference);
        }
        let now = passing.iter().map(Object::reference);
        self.passed.extend(now.clone());
        before.into_iter().chain(now).for_each(|reference| touched.of_import(&reference));
        // The relist has all of the kind.
        let is_of_other = |event: &ObjectEvent| match event {
            ObjectEvent::Apply(object) => object.reference().kind != kind,
            ObjectEvent::Delete(object) | ObjectEvent::Malformed { object, .. } => {
                object.kind != kind
            }
            ObjectEvent::Relist { .. } => true,
        };
        let mut events: Vec<_> = self.settle(touched).into_iter().filter(is_of_other).collect();
        let mut malformed = Vec::new();
        for (reference, results) in
            self.results.iter().filter(|(reference, _)| reference.kind == kind)
        {
            if self.passed.contains(reference) {
                continue;
            }
            match results.values().next() {
                Some(Version::Valid(object)) => passing.push(object.clone()),
                Some(Version::Malformed(message)) => malformed.push(ObjectEvent::Malformed {
                    object: reference.clone(),
                    message: message.clone(),
                }),
                None => {}
            }
        }
        events.push(ObjectEvent::Relist { kind, objects: passing });
        events.extend(malformed);
        events
    }

    /// Tells the imports of adopted controllers from those of KEP-1645.
    fn recognise(&self, object: SortedObject) -> SortedObject {
        let adopts = |controller| self.controllers.contains(&controller);
        match object {
            SortedObject::Import(ForeignImport { import, controller, .. })
                if !adopts(controller) =>
            {
                SortedObject::Standard(Object::Import(import))
            }
            // It is kept with the slices that show whether it is Antrea's.
            SortedObject::Standard(Object::Import(import))
                if adopts(Controller::Antrea)
                    && let Some(service) = antrea::service_of(&import) =>
            {
                let controller = Controller::Antrea;
                SortedObject::Import(ForeignImport { import, controller, service })
            }
            object => object,
        }
    }

    fn pass(&mut self, object: Object) -> Vec<ObjectEvent> {
        let reference = object.reference();
        let mut touched = self.forget(&(reference.clone(), List::Main));
        touched.of_import(&reference);
        self.passed.insert(reference);
        let mut events = self.settle(touched);
        events.push(ObjectEvent::Apply(object));
        events
    }

    fn keep(&mut self, id: Id, version: Version<SortedObject>) -> Touched {
        let mut touched = self.forget(&id);
        touched.of_import(&id.0);
        match &version {
            Version::Valid(object) if let Some(group) = object.group() => {
                self.groups.entry(group.clone()).or_default().insert(id.clone());
                touched.groups.insert(group);
            }
            // Nothing follows from a Service alone.
            Version::Malformed(_) if id.0.kind == Kind::Service => {}
            version => {
                let result = match version {
                    Version::Valid(SortedObject::Standard(object)) => {
                        Version::Valid(object.clone())
                    }
                    Version::Malformed(message) => Version::Malformed(message.clone()),
                    Version::Valid(_) => return touched,
                };
                self.results.entry(id.0.clone()).or_default().insert(Origin::Object(id.1), result);
                touched.results.insert(id.0.clone());
            }
        }
        self.kept.insert(id, version);
        touched
    }

    fn forget(&mut self, id: &Id) -> Touched {
        let mut touched = Touched::default();
        let Some(version) = self.kept.remove(id) else { return touched };
        touched.of_import(&id.0);
        if let Version::Valid(object) = &version
            && let Some(group) = object.group()
        {
            if let Some(members) = self.groups.get_mut(&group) {
                members.remove(id);
                if members.is_empty() {
                    self.groups.remove(&group);
                }
            }
            touched.groups.insert(group);
        } else {
            self.remove_result(&id.0, &Origin::Object(id.1));
            touched.results.insert(id.0.clone());
        }
        touched
    }

    fn remove_result(&mut self, object: &ObjectRef, origin: &Origin) {
        if let Some(results) = self.results.get_mut(object) {
            results.remove(origin);
            if results.is_empty() {
                self.results.remove(object);
            }
        }
    }

    /// Evaluates what was touched. Returns the events for the store.
    fn settle(&mut self, mut touched: Touched) -> Vec<ObjectEvent> {
        for key in std::mem::take(&mut touched.groups) {
            self.evaluate(&key, &mut touched.results);
        }
        let unpassed = touched.results.into_iter().filter(|object| !self.passed.contains(object));
        unpassed
            .map(|object| {
                let results = self.results.get(&object);
                match results.and_then(|results| results.values().next()) {
                    Some(Version::Valid(result)) => ObjectEvent::Apply(result.clone()),
                    Some(Version::Malformed(message)) => {
                        ObjectEvent::Malformed { object, message: message.clone() }
                    }
                    None => ObjectEvent::Delete(object),
                }
            })
            .collect()
    }

    /// Replaces the results of a Service. Adds each result that differs to `changed`.
    fn evaluate(&mut self, key: &ObjectKey, changed: &mut BTreeSet<ObjectRef>) {
        let origin = Origin::Service(key.clone());
        let now: BTreeMap<ObjectRef, Object> =
            self.objects(key).into_iter().map(|object| (object.reference(), object)).collect();
        let before = self.of_group.remove(key).unwrap_or_default();
        for gone in before.iter().filter(|object| !now.contains_key(*object)) {
            self.remove_result(gone, &origin);
            changed.insert(gone.clone());
        }
        if !now.is_empty() {
            self.of_group.insert(key.clone(), now.keys().cloned().collect());
        }
        for (reference, object) in now {
            let version = Some(Version::Valid(object));
            let results = self.results.entry(reference.clone()).or_default();
            if results.get(&origin) != version.as_ref() {
                results.extend(version.map(|version| (origin.clone(), version)));
                changed.insert(reference);
            }
        }
    }

    fn objects(&self, key: &ObjectKey) -> Vec<Object> {
        let group = self.group(key);
        if !group.imports.is_empty() {
            return group.objects();
        }
        let is_listed = self.with_local_slices.has(&key.name);
        let adopts = self.controllers.contains(&Controller::Karmada);
        if adopts && is_listed && !self.has_import(key) {
            group.multi_cluster_service()
        } else {
            Vec::new()
        }
    }

    /// Whether there is an import of this name, whose slices a Service would get otherwise.
    fn has_import(&self, key: &ObjectKey) -> bool {
        let import = ObjectRef { kind: Kind::ServiceImport, key: key.clone() };
        let lists = [List::Main, List::OtherImports];
        self.passed.contains(&import)
            || lists.iter().any(|list| self.kept.contains_key(&(import.clone(), *list)))
    }

    fn group(&self, key: &ObjectKey) -> Group<'_> {
        let mut group = Group::default();
        for id in self.groups.get(key).into_iter().flatten() {
            match self.kept.get(id) {
                Some(Version::Valid(SortedObject::Import(import))) => group.imports.push(import),
                Some(Version::Valid(SortedObject::Service(service))) => {
                    group.service = Some(service);
                }
                Some(Version::Valid(SortedObject::Slice(slice))) => group.slices.push(slice),
                _ => {}
            }
        }
        group
    }
}

impl SortedObject {
    /// Its kind and key.
    pub(super) fn reference(&self) -> ObjectRef {
        match self {
            Self::Standard(object) => object.reference(),
            Self::Import(foreign) => foreign.import.read_from(),
            Self::Service(service) => ObjectRef { kind: Kind::Service, key: service.key.clone() },
            Self::Slice(slice) => {
                ObjectRef { kind: Kind::EndpointSlice, key: slice.slice.key.clone() }
            }
        }
    }

    /// The Service that it belongs to.
    fn group(&self) -> Option<ObjectKey> {
        match self {
            Self::Standard(_) => None,
            Self::Import(foreign) => {
                let namespace = foreign.import.key.namespace.clone();
                Some(ObjectKey::new(namespace, foreign.service.as_str()))
            }
            Self::Service(service) => Some(service.key.clone()),
            Self::Slice(slice) => Some(slice.slice.import()),
        }
    }
}

impl Touched {
    fn extend(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.results.extend(other.results);
    }

    /// An import comes or goes: a Service of its name may be one, or not any more.
    fn of_import(&mut self, object: &ObjectRef) {
        if object.kind == Kind::ServiceImport {
            self.groups.insert(object.key.clone());
        }
    }
}
