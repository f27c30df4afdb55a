//! The ExportedServices and slices of a mailbox, by its watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    sync::Arc,
};

use mcs_kube::{ObjectKey, ResourceEvent, WatchedObject};

use super::{
    ignored::Ignored,
    limits::{Ledger, Limit, Resource, Size},
};
use crate::core::{
    clock,
    clusterset::{ClusterId, ServiceName, SourceSlice, Stamp},
    objects::{
        ExportedObject, ExportedServiceDecoder, MailboxSlice, MailboxSliceDecoder, service_of,
    },
};

type Slices = BTreeMap<Arc<str>, Arc<SourceSlice>>;

/// What an event is about.
#[derive(Debug)]
pub(super) enum Touched {
    /// These services, with all of their slices.
    Services(BTreeSet<ServiceName>),
    /// One slice of a service.
    Slice(ServiceName, Arc<str>),
}

impl Touched {
    pub(super) const NOTHING: Self = Self::Services(BTreeSet::new());

    /// The services.
    pub(super) fn services(self) -> BTreeSet<ServiceName> {
        match self {
            Self::Services(services) => services,
            Self::Slice(service, _) => [service].into(),
        }
    }
}

/// The objects of one mailbox.
#[derive(Debug)]
pub(super) struct Contents {
    cluster: ClusterId,
    /// Whether an older object does not replace a known one: it comes from a backup, or from a publisher that was replaced.
    keeps_latest: bool,
    pub(super) services: BTreeMap<ServiceName, ExportedObject>,
    /// The services in `services` that are about to be deleted.
    withdrawn: BTreeSet<ServiceName>,
    /// The services whose ExportedService cannot be read, with `metadata.resourceVersion`.
    pub(super) unread: BTreeMap<ServiceName, Option<Arc<str>>>,
    pub(super) slices: BTreeMap<ServiceName, Slices>,
    pub(super) ledger: Ledger,
    pub(super) ignored: Ignored,
}

impl Contents {
    pub(crate) fn new(cluster: ClusterId, keeps_latest: bool) -> Self {
        Self {
            cluster,
            keeps_latest,
            services: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            unread: BTreeMap::new(),
            slices: BTreeMap::new(),
            ledger: Ledger::new(),
            ignored: Ignored::new(clock::now()),
        }
    }

    /// The number of ExportedServices, readable or not, without those that are about to be deleted.
    pub(super) fn count(&self) -> usize {
        self.services.len() - self.withdrawn.len() + self.unread.len()
    }

    /// Applies an event of the ExportedServices. Returns the affected services.
    pub(super) fn take_services(
        &mut self,
        event: ResourceEvent<ExportedServiceDecoder>,
    ) -> BTreeSet<ServiceName> {
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let before = std::mem::take(&mut self.services);
                let unread = std::mem::take(&mut self.unread);
                self.withdrawn.clear();
                // If there is no room for all objects, the former ones stay.
                let is_known = |object: &WatchedObject<_>| {
                    service_of(&object.key().name).is_some_and(|name| before.contains_key(&name))
                };
                let (known, new): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_known);
                self.ledger.begin(Resource::Services);
                for object in known.into_iter().chain(new) {
                    self.put_service(object, |name| before.get(name).cloned());
                }
                let before = before.into_keys().chain(unread.into_keys());
                before
                    .chain(self.services.keys().cloned())
                    .chain(self.unread.keys().cloned())
                    .collect()
            }
            ResourceEvent::Changed(object) => {
                let former = service_of(&object.key().name)
                    .and_then(|name| self.services.get(&name).cloned());
                self.put_service(object, |_| former).into_iter().collect()
            }
            ResourceEvent::Deleted(object) => {
                let name = service_of(&object.key().name);
                if let Some(name) = &name {
                    self.services.remove(name);
                    self.unread.remove(name);
                    self.withdrawn.remove(name);
                    self.ledger.remove(Resource::Services, name);
                }
                // One that gave way can still be believed.
                name.into_iter().collect()
            }
            ResourceEvent::LeftOut { objects, .. } => {
                self.ledger.note_left_out(Resource::Services, objects);
                BTreeSet::new()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Stores an ExportedService if it is of this mailbox's cluster and there is room.
    fn put_service(
        &mut self,
        object: WatchedObject<ExportedServiceDecoder>,
        former: impl FnOnce(&ServiceName) -> Option<ExportedObject>,
    ) -> Option<ServiceName> {
        let key = object.key();
        let version = object.version().map(Arc::from);
        match object.decoded {
            Ok(ExportedObject { exported, .. }) if exported.export.cluster != self.cluster => {
                let problem = format!("it is of cluster {}", exported.export.cluster);
                self.ignore("ExportedService", &key, &problem);
                None
            }
            Ok(mut object) => {
                object.exported = self.ledger.usable(object.exported);
                let name = object.exported.export.name.clone();
                let former =
                    former(&name).filter(|former| self.is_before(object.stamp, former.stamp));
                let object = former.unwrap_or(object);
                let size = Size::of_service(&object.exported);
                if !self.admit(Resource::Services, &name, &name, size) {
                    return None;
                }
                self.unread.remove(&name);
                if object.is_withdrawn {
                    self.withdrawn.insert(name.clone());
                } else {
                    self.withdrawn.remove(&name);
                }
                self.services.insert(name.clone(), object);
                Some(name)
            }
            Err(error) => {
                self.ignore("ExportedService", &key, &error);
                let name = service_of(&key.name)?;
                if !self.admit(Resource::Services, &name, &name, Size::OF_UNREAD) {
                    return None;
                }
                self.services.remove(&name);
                self.withdrawn.remove(&name);
                self.unread.insert(name.clone(), version);
                Some(name)
            }
        }
    }

    /// Whether there is room for an object of a service. Services of the namespace that has most give way.
    fn admit(
        &mut self,
        resource: Resource,
        service: &ServiceName,
        name: &impl Hash,
        size: Size,
    ) -> bool {
        let namespace = service.shared_namespace();
        loop {
            let Err(limit) = self.ledger.admit(resource, (namespace, name), size) else {
                return true;
            };
            let heaviest = self.ledger.heaviest(resource, limit, (namespace, name), size);
            if !heaviest.is_some_and(|heaviest| self.give_way(&heaviest, limit)) {
                self.ledger.leave_out(resource, name, limit);
                return false;
            }
        }
    }

    /// Forgets the last service of a namespace. What was imported of it stays.
    fn give_way(&mut self, namespace: &Arc<str>, limit: Limit) -> bool {
        let of = || ServiceName::all_of(namespace);
        let last = [
            self.services.range(of()).next_back().map(|(name, _)| name),
            self.unread.range(of()).next_back().map(|(name, _)| name),
            self.slices.range(of()).next_back().map(|(name, _)| name),
        ];
        let Some(last) = last.into_iter().flatten().max().cloned() else { return false };
        if self.services.remove(&last).is_some() | self.unread.remove(&last).is_some() {
            self.ledger.give_way(Resource::Services, &last, limit);
        }
        self.withdrawn.remove(&last);
        for slice in self.slices.remove(&last).into_iter().flat_map(Slices::into_keys) {
            self.ledger.give_way(Resource::Slices, &(&last, &slice), limit);
        }
        true
    }

    fn ignore(&mut self, kind: &str, key: &ObjectKey, problem: &str) {
        self.ignored.note(&self.cluster, (kind, key), problem, clock::now());
    }

    fn is_before(&self, stamp: Stamp, former: Stamp) -> bool {
        self.keeps_latest && stamp.is_before(former)
    }

    /// Applies an event of the slices. Returns what it is about.
    pub(super) fn take_slices(&mut self, event: ResourceEvent<MailboxSliceDecoder>) -> Touched {
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let before = std::mem::take(&mut self.slices);
                let former = |service: &ServiceName, slice: &SourceSlice| {
                    before.get(service).and_then(|all| all.get(&slice.name)).cloned()
                };
                let slices = objects.into_iter().filter_map(|object| self.mailbox_slice(object));
                let (known, new): (Vec<_>, Vec<_>) =
                    slices.partition(|(service, slice)| former(service, slice).is_some());
                self.ledger.begin(Resource::Slices);
                for (service, slice) in known.into_iter().chain(new) {
                    let former = former(&service, &slice);
                    self.put_slice(&service, slice, former);
                }
                Touched::Services(before.into_keys().chain(self.slices.keys().cloned()).collect())
            }
            ResourceEvent::Changed(object) => {
                let Some((service, slice)) = self.mailbox_slice(object) else {
                    return Touched::NOTHING;
                };
                let former = self.slices.get(&service).and_then(|all| all.get(&slice.name));
                let former = former.cloned();
                let name = Arc::clone(&slice.name);
                if self.put_slice(&service, slice, former) {
                    Touched::Slice(service, name)
                } else {
                    Touched::NOTHING
                }
            }
            ResourceEvent::Deleted(object) => {
                let Some((service, slice)) = self.mailbox_slice(object) else {
                    return Touched::NOTHING;
                };
                if let Some(slices) = self.slices.get_mut(&service) {
                    slices.remove(&slice.name);
                    if slices.is_empty() {
                        self.slices.remove(&service);
                    }
                }
                self.ledger.remove(Resource::Slices, &(&service, &slice.name));
                Touched::Slice(service, Arc::clone(&slice.name))
            }
            ResourceEvent::LeftOut { objects, .. } => {
                self.ledger.note_left_out(Resource::Slices, objects);
                Touched::NOTHING
            }
            _ => Touched::NOTHING,
        }
    }

    /// Stores a slice if there is room.
    fn put_slice(
        &mut self,
        service: &ServiceName,
        slice: Arc<SourceSlice>,
        former: Option<Arc<SourceSlice>>,
    ) -> bool {
        let former = former.filter(|former| self.is_before(slice.stamp, former.stamp));
        let slice = former.unwrap_or(slice);
        let (name, size) = (Arc::clone(&slice.name), Size::of_slice(&slice));
        let fits = self.admit(Resource::Slices, service, &(service, &name), size);
        if fits {
            self.slices.entry(service.clone()).or_default().insert(name, slice);
        }
        fits
    }

    /// A slice of another cluster does not count.
    fn mailbox_slice(
        &mut self,
        object: WatchedObject<MailboxSliceDecoder>,
    ) -> Option<(ServiceName, Arc<SourceSlice>)> {
        let key = object.key();
        let problem = match object.decoded {
            Ok(None) => return None,
            Ok(Some(MailboxSlice { cluster, service, slice })) => {
                match cluster.filter(|cluster| *cluster != self.cluster) {
                    None => return Some((service, slice)),
                    Some(other) => format!("it is of cluster {other}"),
                }
            }
            Err(error) => error,
        };
        self.ignore("EndpointSlice", &key, &problem);
        None
    }
}
