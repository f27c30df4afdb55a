//! The ExportedServices and slices that are in a mailbox, as its watches tell.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use mcs_kube::{ResourceEvent, WatchedObject};

use crate::{
    clusterset::{ClusterId, ServiceName, SourceSlice, Stamp},
    objects::{
        ExportedObject, ExportedServiceDecoder, MailboxSlice, MailboxSliceDecoder, service_of,
    },
};

type Slices = BTreeMap<Arc<str>, Arc<SourceSlice>>;

/// The objects of one mailbox.
#[derive(Debug)]
pub(super) struct Contents {
    cluster: ClusterId,
    /// Whether an object that was written before the one that is known does not replace it: a backup has brought it back,
    /// or a publisher that was replaced wrote it.
    keeps_latest: bool,
    services: BTreeMap<ServiceName, ExportedObject>,
    /// Those of `services` that are about to be deleted.
    withdrawn: BTreeSet<ServiceName>,
    /// The services whose ExportedService cannot be read, with `metadata.resourceVersion`.
    unread: BTreeMap<ServiceName, Option<Arc<str>>>,
    slices: HashMap<ServiceName, Slices>,
}

impl Contents {
    pub(super) fn new(cluster: ClusterId, keeps_latest: bool) -> Self {
        Self {
            cluster,
            keeps_latest,
            services: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            unread: BTreeMap::new(),
            slices: HashMap::new(),
        }
    }

    /// The ExportedServices that can be read.
    pub(super) const fn services(&self) -> &BTreeMap<ServiceName, ExportedObject> {
        &self.services
    }

    /// The services whose ExportedService cannot be read, with its version.
    pub(super) const fn unread(&self) -> &BTreeMap<ServiceName, Option<Arc<str>>> {
        &self.unread
    }

    /// The slices by their services.
    pub(super) const fn slices(&self) -> &HashMap<ServiceName, Slices> {
        &self.slices
    }

    /// The number of ExportedServices, whether they can be read or not, but for those that are about to be deleted.
    pub(super) fn count(&self) -> usize {
        self.services.len() - self.withdrawn.len() + self.unread.len()
    }

    /// Applies an event of the ExportedServices. Returns the services that it touches.
    pub(super) fn take_services(
        &mut self,
        event: ResourceEvent<ExportedServiceDecoder>,
    ) -> BTreeSet<ServiceName> {
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let before = std::mem::take(&mut self.services);
                let unread = std::mem::take(&mut self.unread);
                self.withdrawn.clear();
                for object in objects {
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
                let name = service_of(&object.key().name).filter(|name| {
                    let was_read = self.services.remove(name).is_some();
                    self.withdrawn.remove(name);
                    self.unread.remove(name).is_some() || was_read
                });
                name.into_iter().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// An ExportedService of another cluster does not count.
    fn put_service(
        &mut self,
        object: WatchedObject<ExportedServiceDecoder>,
        former: impl FnOnce(&ServiceName) -> Option<ExportedObject>,
    ) -> Option<ServiceName> {
        let key = object.key();
        let version = object.version().map(Arc::from);
        match object.decoded {
            Ok(ExportedObject { exported, .. }) if exported.export.cluster != self.cluster => {
                let other = exported.export.cluster;
                tracing::warn!("ExportedService {key} is ignored: it is of cluster {other}");
                None
            }
            Ok(object) => {
                let name = object.exported.export.name.clone();
                let former =
                    former(&name).filter(|former| self.is_before(object.stamp, former.stamp));
                let object = former.unwrap_or(object);
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
                tracing::warn!("ExportedService {key} cannot be read: {error}");
                let name = service_of(&key.name)?;
                self.services.remove(&name);
                self.withdrawn.remove(&name);
                self.unread.insert(name.clone(), version);
                Some(name)
            }
        }
    }

    fn is_before(&self, stamp: Stamp, former: Stamp) -> bool {
        self.keeps_latest && stamp.is_before(former)
    }

    /// Applies an event of the slices. Returns the services that it touches.
    pub(super) fn take_slices(
        &mut self,
        event: ResourceEvent<MailboxSliceDecoder>,
    ) -> BTreeSet<ServiceName> {
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let before = std::mem::take(&mut self.slices);
                for object in objects {
                    if let Some((service, slice)) = self.mailbox_slice(object) {
                        let former = before.get(&service).and_then(|all| all.get(&slice.name));
                        self.put_slice(&service, slice, former.cloned());
                    }
                }
                before.into_keys().chain(self.slices.keys().cloned()).collect()
            }
            ResourceEvent::Changed(object) => {
                let Some((service, slice)) = self.mailbox_slice(object) else {
                    return BTreeSet::new();
                };
                let former = self.slices.get(&service).and_then(|all| all.get(&slice.name));
                let former = former.cloned();
                self.put_slice(&service, slice, former);
                BTreeSet::from([service])
            }
            ResourceEvent::Deleted(object) => {
                let Some((service, slice)) = self.mailbox_slice(object) else {
                    return BTreeSet::new();
                };
                if let Some(slices) = self.slices.get_mut(&service) {
                    slices.remove(&slice.name);
                    if slices.is_empty() {
                        self.slices.remove(&service);
                    }
                }
                BTreeSet::from([service])
            }
            _ => BTreeSet::new(),
        }
    }

    fn put_slice(
        &mut self,
        service: &ServiceName,
        slice: Arc<SourceSlice>,
        former: Option<Arc<SourceSlice>>,
    ) {
        let former = former.filter(|former| self.is_before(slice.stamp, former.stamp));
        let slice = former.unwrap_or(slice);
        let slices = self.slices.entry(service.clone()).or_default();
        slices.insert(Arc::clone(&slice.name), slice);
    }

    /// A slice of another cluster does not count.
    fn mailbox_slice(
        &self,
        object: WatchedObject<MailboxSliceDecoder>,
    ) -> Option<(ServiceName, Arc<SourceSlice>)> {
        let key = object.key();
        let MailboxSlice { cluster, service, slice } = object.decoded.unwrap_or_else(|error| {
            tracing::warn!("EndpointSlice {key} of a mailbox is ignored: {error}");
            None
        })?;
        if let Some(other) = cluster.filter(|cluster| *cluster != self.cluster) {
            tracing::warn!("EndpointSlice {key} of a mailbox is ignored: it is of cluster {other}");
            return None;
        }
        Some((service, slice))
    }
}
