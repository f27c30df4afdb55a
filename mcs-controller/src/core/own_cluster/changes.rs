//! Applies each event of a watch of this cluster, and returns its effects.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use mcs_kube::{
    Decoder, ObjectKey, ResourceEvent, VIP_RANGES_PROPERTY, VipRangeList, WatchedObject,
};

use super::{API_SERVERS, Imported, OwnChanges, OwnCluster, OwnResource, toggle};
use crate::core::{
    clusterset::{ServiceName, SourceSlice, published},
    feed::{Change, changes},
    objects::{
        ExportDecoder, ExportObject, ImportDecoder, ImportedObject, ImportedSliceDecoder,
        LocalSlice, LocalSliceDecoder, NamespaceDecoder, NodeDecoder, PropertyDecoder,
        RangeDecoder, ServiceDecoder, ServiceObject, WrittenSlice,
    },
};

impl OwnCluster {
    pub(super) fn take<D: Decoder>(
        &mut self,
        resource: OwnResource,
        event: ResourceEvent<D>,
        change: fn(&mut Self, Change<D>) -> OwnChanges,
    ) -> OwnChanges {
        self.feeds[resource as usize].record_and_log(&event);
        let mut all = OwnChanges::default();
        for one in changes(event) {
            all.add(change(self, one));
        }
        for name in &all.services {
            let imported = self.imported.get(name);
            if imported.is_some_and(Imported::is_empty) {
                self.imported.remove(name);
            }
        }
        all
    }

    pub(super) fn change_export(&mut self, change: Change<ExportDecoder>) -> OwnChanges {
        let name = match change {
            Change::Clear => {
                self.misnamed.clear();
                return OwnChanges::of(std::mem::take(&mut self.exports).into_keys());
            }
            Change::Remove(object) => {
                self.misnamed.remove(&object.key());
                service_name(&object.key()).filter(|name| self.exports.remove(name).is_some())
            }
            Change::Set(object) if service_name(&object.key()).is_none() => {
                let is_judged = object.decoded.as_ref().is_ok_and(ExportObject::is_judged);
                if is_judged {
                    self.misnamed.remove(&object.key());
                } else {
                    self.misnamed.insert(object.key());
                }
                None
            }
            Change::Set(object) => named("ServiceExport", object).map(|(name, export)| {
                self.exports.insert(name.clone(), export);
                name
            }),
        };
        OwnChanges::of(name)
    }

    pub(super) fn change_service(&mut self, change: Change<ServiceDecoder>) -> OwnChanges {
        let mut more = OwnChanges::default();
        let (name, former) = match change {
            Change::Clear => {
                let had = std::mem::take(&mut self.services);
                let imports: Vec<_> =
                    had.iter().filter_map(|(name, one)| derived_from(name, one)).collect();
                let cluster_ips = std::mem::take(&mut self.cluster_ips).into_keys().collect();
                let changes = OwnChanges::of(had.into_keys().chain(imports));
                return OwnChanges { cluster_ips, ..changes };
            }
            Change::Remove(object) => {
                let Some(name) = service_name(&object.key()) else { return OwnChanges::default() };
                let former = self.services.remove(&name);
                (name, former)
            }
            Change::Set(object) => {
                let Some((name, service)) = named("Service", object) else {
                    return OwnChanges::default();
                };
                more = self.note_service_families(&service);
                let former = self.services.insert(name.clone(), service);
                (name, former)
            }
        };
        let now = self.services.get(&name);
        if now == former.as_ref() {
            return OwnChanges::default();
        }
        let imports: Vec<_> =
            former.iter().chain(now).filter_map(|one| derived_from(&name, one)).collect();
        let (had, has) = (cluster_ips(former.as_ref()), cluster_ips(now));
        for ip in &had {
            // Another Service may have the address by now.
            if self.cluster_ips.get(ip) == Some(&name) {
                self.cluster_ips.remove(ip);
            }
        }
        self.cluster_ips.extend(has.iter().map(|ip| (*ip, name.clone())));
        more.cluster_ips = had.symmetric_difference(&has).copied().collect();
        let is_followed = |name: &ServiceName| self.followed.contains(name.namespace());
        let name = Some(name).filter(|name| is_followed(name) || self.exports.contains_key(name));
        more.services.extend(name.into_iter().chain(imports));
        more
    }

    /// Most Services are not exported.
    fn if_exported(&self, name: Option<ServiceName>) -> OwnChanges {
        OwnChanges::of(name.filter(|name| self.exports.contains_key(name)))
    }

    pub(super) fn change_slice(&mut self, change: Change<LocalSliceDecoder>) -> OwnChanges {
        let (object, stays) = match change {
            Change::Clear => {
                self.local_owners.clear();
                return OwnChanges::of(std::mem::take(&mut self.slices).into_keys());
            }
            Change::Set(object) => (object, true),
            Change::Remove(object) => (object, false),
        };
        let key = object.key();
        // The slice may have belonged to another Service before.
        let former = self.local_owners.remove(&key);
        let is_api = (&*key.namespace, &*key.name) == API_SERVERS;
        let mut cluster_ips = BTreeSet::new();
        if let Some(former) = &former
            && let Some(slices) = self.slices.get_mut(former)
        {
            slices.remove(&key.name);
            if slices.is_empty() {
                self.slices.remove(former);
                cluster_ips = self.cluster_ips_of(former);
            }
        }
        let mut changes = self.if_exported(former);
        (changes.all, changes.cluster_ips) = (is_api, cluster_ips);
        if let Some((name, slice)) = local_slice(object).filter(|_| stays) {
            if !self.slices.contains_key(&name) {
                toggle(&mut changes.cluster_ips, self.cluster_ips_of(&name));
            }
            let slices = self.slices.entry(name.clone()).or_default();
            slices.insert(Arc::clone(&slice.name), slice);
            self.local_owners.insert(key, name.clone());
            changes.add(self.if_exported(Some(name)));
        }
        changes
    }

    fn cluster_ips_of(&self, service: &ServiceName) -> BTreeSet<IpAddr> {
        cluster_ips(self.services.get(service))
    }

    pub(super) fn change_namespace(&mut self, change: Change<NamespaceDecoder>) -> OwnChanges {
        let changed = match change {
            Change::Clear => std::mem::take(&mut self.namespaces),
            Change::Remove(object) => {
                let name = object.key().name;
                self.namespaces.remove(&name);
                // A namespace in deletion can be created again.
                [name].into()
            }
            Change::Set(object) => {
                let name = object.key().name;
                let changed = match object.decoded {
                    Ok(true) => self.namespaces.insert(Arc::clone(&name)),
                    _ => self.namespaces.remove(&name),
                };
                changed.then_some(name).into_iter().collect()
            }
        };
        OwnChanges { namespaces: changed, ..OwnChanges::default() }
    }

    /// The name of the clusterset decides the range of VIPs. The ranges for agents decide what they accept. Cluster
    /// selectors can match any other property.
    pub(super) fn change_property(&mut self, change: Change<PropertyDecoder>) -> OwnChanges {
        let former = self.clusterset().map(str::to_owned);
        match change {
            Change::Clear => self.properties.clear(),
            Change::Remove(object) => {
                self.properties.remove(&object.key().name);
            }
            Change::Set(object) => {
                if let Ok(Some(property)) = object.decoded.clone() {
                    self.properties.insert(object.key().name, property);
                }
            }
        }
        let is_renamed = self.clusterset() != former.as_deref();
        if is_renamed {
            self.pod_ranges.take();
        }
        let (properties, left_out) =
            published(self.properties.iter().map(|(name, one)| (name, &one.value)));
        let told = self.property(VIP_RANGES_PROPERTY);
        let told = told.and_then(|value| VipRangeList::parse(value).ok());
        let all = is_renamed
            || properties != *self.published_properties.0
            || told != self.present_vip_ranges;
        self.published_properties = (Arc::new(properties), left_out);
        self.present_vip_ranges = told;
        OwnChanges { all, ..OwnChanges::default() }
    }

    pub(super) fn change_import(&mut self, change: Change<ImportDecoder>) -> OwnChanges {
        let mut more = OwnChanges::default();
        let name = match change {
            Change::Clear => {
                let had = self
                    .imported
                    .iter_mut()
                    .filter_map(|(name, imported)| imported.import.take().map(|_| name.clone()));
                return OwnChanges::of(had.collect::<Vec<_>>());
            }
            Change::Remove(object) => service_name(&object.key()).filter(|name| {
                let imported = self.imported.get_mut(name);
                imported.is_some_and(|imported| imported.import.take().is_some())
            }),
            Change::Set(object) => named("ServiceImport", object).and_then(|(name, import)| {
                more = self.note_import_families(&import);
                let imported = self.imported.entry(name.clone()).or_default();
                if imported.import.as_ref() == Some(&import) {
                    return None;
                }
                imported.import = Some(import);
                Some(name)
            }),
        };
        more.services.extend(name);
        more
    }

    pub(super) fn change_imported_slice(
        &mut self,
        change: Change<ImportedSliceDecoder>,
    ) -> OwnChanges {
        let (object, stays) = match change {
            Change::Clear => {
                self.slice_owners.clear();
                let had = self.imported.iter_mut().filter_map(|(name, imported)| {
                    let had = !imported.slices.is_empty() || !imported.others.is_empty();
                    imported.slices.clear();
                    imported.others.clear();
                    had.then(|| name.clone())
                });
                return OwnChanges::of(had.collect::<Vec<_>>());
            }
            Change::Set(object) => (object, true),
            Change::Remove(object) => (object, false),
        };
        let key = object.key();
        let mut changes = OwnChanges::default();
        // The slice may have belonged to another service before.
        if let Some(owner) = self.slice_owners.remove(&key) {
            if let Some(imported) = self.imported.get_mut(&owner) {
                imported.slices.remove(&key.name);
                imported.others.remove(&key.name);
            }
            changes.services.insert(owner);
        }
        let decoded = object.decoded.unwrap_or_default().filter(|_| stays);
        if let Some(ImportedObject { service, slice }) = decoded {
            let imported = self.imported.entry(service.clone()).or_default();
            let name = Arc::clone(&key.name);
            match slice {
                WrittenSlice::Ours(actual) => drop(imported.slices.insert(name, actual)),
                WrittenSlice::Others(cluster) => drop(imported.others.insert(name, cluster)),
            }
            changes.services.insert(service.clone());
            self.slice_owners.insert(key, service);
        }
        changes
    }

    pub(super) fn change_range(&mut self, change: Change<RangeDecoder>) -> OwnChanges {
        match change {
            Change::Clear => self.ranges.clear(),
            Change::Remove(object) => {
                self.ranges.remove(&object.key().name);
            }
            Change::Set(object) => {
                let name = object.key().name;
                self.ranges.insert(name, object.decoded.unwrap_or_default());
            }
        }
        OwnChanges::all()
    }

    pub(super) fn change_node(&mut self, change: Change<NodeDecoder>) -> OwnChanges {
        let (former, now) = match change {
            Change::Clear => {
                self.pod_ranges.take();
                self.node_addresses.take();
                let gone = std::mem::take(&mut self.nodes).into_values();
                let addresses = gone.flat_map(|node| node.addresses).collect();
                return OwnChanges { addresses, pod_ranges: true, ..OwnChanges::default() };
            }
            Change::Remove(object) => (self.nodes.remove(&object.key().name), None),
            Change::Set(object) => {
                let name = object.key().name;
                let node = object.decoded.unwrap_or_default();
                (self.nodes.insert(Arc::clone(&name), node.clone()), Some((name, node)))
            }
        };
        let former = former.unwrap_or_default();
        let (name, now) = now.unwrap_or_default();
        let pod_ranges = former.pod_ranges != now.pod_ranges;
        if pod_ranges {
            self.pod_ranges.take();
        }
        if former.too_wide != now.too_wide && !now.too_wide.is_empty() {
            let ranges: Vec<_> = now.too_wide.iter().map(ToString::to_string).collect();
            tracing::warn!(
                "podCIDRs {} of Node {name} are too wide for one node, and are ignored. If they are the ranges of this \
                 cluster's pods, give the controller --pod-cidr",
                ranges.join(", ")
            );
        }
        let addresses: BTreeSet<_> =
            former.addresses.symmetric_difference(&now.addresses).copied().collect();
        if !addresses.is_empty() {
            self.node_addresses.take();
        }
        OwnChanges { addresses, pod_ranges, ..OwnChanges::default() }
    }
}

fn cluster_ips(service: Option<&ServiceObject>) -> BTreeSet<IpAddr> {
    service.iter().flat_map(|service| service.cluster_ips.iter().copied()).collect()
}

pub(super) fn service_name(key: &ObjectKey) -> Option<ServiceName> {
    ServiceName::new(&key.namespace, &key.name).ok()
}

/// The import that a Service is derived from.
fn derived_from(name: &ServiceName, service: &ServiceObject) -> Option<ServiceName> {
    ServiceName::new(name.namespace(), service.import()?).ok()
}

/// The name and content of a usable object.
fn named<D: Decoder>(kind: &str, object: WatchedObject<D>) -> Option<(ServiceName, D::Value)> {
    let key = object.key();
    match object.decoded {
        Ok(value) => Some((service_name(&key)?, value)),
        Err(error) => {
            tracing::warn!("{kind} {key} is ignored: {error}");
            None
        }
    }
}

fn local_slice(
    object: WatchedObject<LocalSliceDecoder>,
) -> Option<(ServiceName, Arc<SourceSlice>)> {
    let key = object.key();
    let LocalSlice { service, slice } = object.decoded.ok()??;
    Some((ServiceName::new(&key.namespace, &service).ok()?, slice))
}
