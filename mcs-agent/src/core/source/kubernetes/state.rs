//! Collects what the watches report into batches: nothing before everything was read once, then each
//! change.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use mcs_kube::{
    Decoder, PropertyDecoder, RangeDecoder, ResourceEvent, TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY,
    VipRangeList, WatchTarget, discovery::ApiGroups,
};

use super::{
    WatchTargets,
    decoders::{ImportDecoder, NodeDecoder, NodeValues, SliceDecoder},
    property::Property,
    watched_list::{WatchedList, WatchedResource},
};
use crate::core::{
    model::{EventBatch, Kind, NodeFacts, SourceStatus, Traffic},
    source::{Filter, ObjectFilter, ReadEvent, ReadObject},
};

/// An event of one of the watches, or the addresses of the API server.
#[expect(clippy::large_enum_variant, reason = "each is moved once, through a channel")]
#[derive(Debug)]
pub(crate) enum ClusterUpdate {
    Imports(ResourceEvent<ImportDecoder>),
    Slices(ResourceEvent<SliceDecoder>),
    /// Of a watch of the filter.
    Filter(Box<dyn Any + Send>),
    Node(ResourceEvent<NodeDecoder>),
    ClusterId(ResourceEvent<PropertyDecoder>),
    Traffic(ResourceEvent<PropertyDecoder>),
    VipRanges(ResourceEvent<PropertyDecoder>),
    ServiceRanges(ResourceEvent<RangeDecoder>),
    ApiServers(BTreeSet<IpAddr>),
    Groups(ApiGroups),
}

/// The state of the cluster, as far as the watches have reported it.
///
/// It produces no object events before every watched resource was listed: an import without its slices
/// has no backends, and without the zone a slice has others.
pub(crate) struct ClusterState {
    name: String,
    /// The lists are empty once the object events have begun, since the receiver then has the objects.
    imports: WatchedList<ReadObject>,
    slices: WatchedList<ReadObject>,
    filter: Filter,
    /// `None` if no Node is watched.
    node: Option<WatchedList<NodeValues>>,
    /// `None` if no ClusterProperty is watched.
    cluster_id: Option<WatchedList<Option<String>>>,
    traffic: Property<Traffic>,
    /// `None` if no such ClusterProperty is watched.
    vip_ranges: Option<Property<VipRangeList>>,
    /// `None` if no ServiceCIDR is watched.
    service_ranges: Option<WatchedList<Vec<IpNet>>>,
    api_servers: BTreeSet<IpAddr>,
    /// Whether the object events have begun.
    synced: bool,
    /// What the latest batch said beside its events.
    last: Option<Facts>,
}

/// What a batch says beside its events.
#[derive(Clone, PartialEq)]
struct Facts {
    node: Arc<NodeFacts>,
    status: Arc<SourceStatus>,
}

impl ClusterState {
    /// The state before the first event.
    pub(crate) fn new(name: String, targets: &WatchTargets, filter: Filter) -> Self {
        let WatchTargets { imports, slices, node, cluster_id, traffic, vip_ranges, service_ranges } =
            targets;
        let imports = WatchedList::new(imports);
        Self {
            name,
            // What a filter makes imports of may need no CRD.
            imports: if filter.on().is_some() { imports.optional() } else { imports },
            slices: WatchedList::new(slices),
            filter,
            node: node.as_ref().map(values),
            cluster_id: cluster_id.as_ref().map(values),
            traffic: Property::new(TRAFFIC_PROPERTY, traffic, Traffic::parse),
            vip_ranges: vip_ranges
                .as_ref()
                .map(|target| Property::new(VIP_RANGES_PROPERTY, target, VipRangeList::parse)),
            service_ranges: service_ranges.as_ref().map(values),
            api_servers: BTreeSet::new(),
            synced: false,
            last: None,
        }
    }

    /// Applies an update. Returns a batch if the update changes anything.
    pub(crate) fn update(&mut self, update: ClusterUpdate) -> Option<EventBatch> {
        let synced = self.synced;
        // Most updates are of slices, and most of these are changes of one.
        let may_be_new_facts = !matches!(
            update,
            ClusterUpdate::Slices(ResourceEvent::Changed(_) | ResourceEvent::Deleted(_))
        );
        let mut events = Vec::new();
        match update {
            ClusterUpdate::Imports(event) => {
                let read = |import| Some(ReadObject::Import(Box::new(import)));
                let read = follow(&mut self.imports, Kind::ServiceImport, event, read, synced);
                events = self.filter.pass(read);
            }
            ClusterUpdate::Slices(event) => {
                let read = |slice: Option<_>| slice.map(ReadObject::Slice);
                let read = follow(&mut self.slices, Kind::EndpointSlice, event, read, synced);
                events = self.filter.pass(read);
            }
            ClusterUpdate::Filter(update) => {
                if let Some(filter) = &mut self.filter.0 {
                    events = filter.update(update);
                }
            }
            ClusterUpdate::Node(event) => apply(&mut self.node, event),
            ClusterUpdate::ClusterId(event) => apply(&mut self.cluster_id, event),
            ClusterUpdate::Traffic(event) => self.traffic.apply(event),
            ClusterUpdate::VipRanges(event) => {
                if let Some(ranges) = &mut self.vip_ranges {
                    ranges.apply(event);
                }
            }
            ClusterUpdate::ServiceRanges(event) => apply(&mut self.service_ranges, event),
            ClusterUpdate::ApiServers(addresses) => self.api_servers = addresses,
            ClusterUpdate::Groups(groups) => {
                if let Some(filter) = &mut self.filter.0 {
                    filter.take_groups(&groups);
                }
            }
        }
        if !synced {
            events = Vec::new();
            let is_complete = self.filter.on().is_none_or(ObjectFilter::is_complete);
            if is_complete && self.resources().all(|resource| resource.synced) {
                self.synced = true;
                let mut all = self.imports.relist(Kind::ServiceImport);
                all.extend(self.slices.relist(Kind::EndpointSlice));
                events = self.filter.pass(all);
            }
        }
        let known = self.last.clone().filter(|_| !may_be_new_facts);
        let facts = known.unwrap_or_else(|| self.facts());
        let is_new = self.last.as_ref() != Some(&facts);
        if is_new {
            self.last = Some(facts);
        }
        let Facts { node, status } = self.last.clone()?;
        (is_new || !events.is_empty()).then_some(EventBatch { events, node, status })
    }

    fn resources(&self) -> impl Iterator<Item = &WatchedResource> {
        let values = [
            self.node.as_ref().map(|node| &node.resource),
            self.cluster_id.as_ref().map(|cluster_id| &cluster_id.resource),
            Some(self.traffic.resource()),
            self.vip_ranges.as_ref().map(Property::resource),
            self.service_ranges.as_ref().map(|ranges| &ranges.resource),
        ];
        let lists = [&self.imports, &self.slices].map(|list| &list.resource);
        let filters = self.filter.on().map(|filter| filter.resources()).unwrap_or_default();
        lists.into_iter().chain(filters).chain(values.into_iter().flatten())
    }

    fn facts(&self) -> Facts {
        Facts { node: self.node().into(), status: self.status().into() }
    }

    fn node(&self) -> NodeFacts {
        let node = self.node.as_ref().and_then(first);
        let ranges = self.service_ranges.iter().flat_map(WatchedList::values);
        let ranges: BTreeSet<IpNet> = ranges.flatten().copied().collect();
        NodeFacts {
            zone: node.and_then(|node| node.zone.clone()),
            cluster_id: self.cluster_id.as_ref().and_then(first).cloned().flatten(),
            api_servers: self.api_servers.clone(),
            // Every cluster has a range. Without an object, the API server has not written it yet.
            service_ranges: (!ranges.is_empty()).then_some(ranges),
            pod_ranges: node.into_iter().flat_map(|node| &node.pod_ranges).copied().collect(),
            traffic: self.traffic.value(),
            vip_ranges: self
                .vip_ranges
                .as_ref()
                .map(|ranges| ranges.value().ranges().to_vec())
                .unwrap_or_default(),
            translates_first: None,
        }
    }

    fn status(&self) -> SourceStatus {
        SourceStatus {
            name: self.name.clone(),
            kinds: self.resources().map(WatchedResource::status).collect(),
            problems: self
                .resources()
                .filter_map(WatchedResource::problem)
                .chain(self.traffic.problem())
                .chain(self.vip_ranges.as_ref().and_then(Property::problem))
                .collect(),
            skipped: BTreeMap::new(),
            whole: "",
            sections: self.filter.status(),
        }
    }
}

/// A resource that a cluster need not have, with few objects.
fn values<V>(target: &WatchTarget) -> WatchedList<V> {
    WatchedList::new(target).optional()
}

fn first<V>(values: &WatchedList<V>) -> Option<&V> {
    values.values().next()
}

/// Applies an event to a resource that is watched.
fn apply<D: Decoder>(values: &mut Option<WatchedList<D::Value>>, event: ResourceEvent<D>) {
    if let Some(values) = values {
        values.keep(event, Some);
    }
}

/// Applies an event of objects. Returns those for the store if the object events have begun.
fn follow<D: Decoder>(
    list: &mut WatchedList<ReadObject>,
    kind: Kind,
    event: ResourceEvent<D>,
    read: impl Fn(D::Value) -> Option<ReadObject>,
    synced: bool,
) -> Vec<ReadEvent> {
    if synced {
        return list.pass(kind, event, read);
    }
    list.keep(event, read);
    Vec::new()
}

#[cfg(test)]
pub(crate) mod tests;
