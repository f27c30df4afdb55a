//! Collects what the watches report into batches: nothing before everything was read once, then each
//! change.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use mcs_kube::{
    Decoder, PropertyDecoder, ResourceEvent, TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY, VipRangeList,
    discovery::ApiGroups,
};
use tokio::sync::watch;

use super::{
    WatchTargets,
    adoption::Adoption,
    decoders::{
        ImportDecoder, NodeDecoder, NodeValues, ServiceDecoder, ServiceRangeDecoder, SliceDecoder,
    },
    object_list::{ObjectList, WatchedResource},
    property::Property,
    value_list::ValueList,
};
use crate::{
    model::{AdoptableGroup, EventBatch, Kind, NodeFacts, SourceStatus, Traffic},
    source::adopt::{self, Controller, Coverage, List},
};

/// An event of one of the watches, or the addresses of the API server.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ClusterUpdate {
    Imports(ResourceEvent<ImportDecoder>),
    Slices(ResourceEvent<SliceDecoder>),
    OtherImports(ResourceEvent<ImportDecoder>),
    Services(ResourceEvent<ServiceDecoder>),
    AdoptableSlices(ResourceEvent<SliceDecoder>),
    /// The watch of local slices begins anew, for these Services.
    LocalServices(Coverage),
    LocalSlices(ResourceEvent<SliceDecoder>),
    Node(ResourceEvent<NodeDecoder>),
    ClusterId(ResourceEvent<PropertyDecoder>),
    Traffic(ResourceEvent<PropertyDecoder>),
    VipRanges(ResourceEvent<PropertyDecoder>),
    ServiceRanges(ResourceEvent<ServiceRangeDecoder>),
    ApiServers(BTreeSet<IpAddr>),
    Groups(ApiGroups),
}

/// The state of the cluster, as far as the watches have reported it.
///
/// It produces no object events before every watched resource was listed: an import without its slices
/// has no backends, and without the zone a slice has others.
pub(super) struct ClusterState {
    name: String,
    imports: ObjectList,
    slices: ObjectList,
    adoption: Adoption,
    /// `None` if no Node is watched.
    node: Option<ValueList<NodeValues>>,
    /// `None` if no ClusterProperty is watched.
    cluster_id: Option<ValueList<Option<String>>>,
    traffic: Property<Traffic>,
    /// `None` if no such ClusterProperty is watched.
    vip_ranges: Option<Property<VipRangeList>>,
    /// `None` if no ServiceCIDR is watched.
    service_ranges: Option<ValueList<Vec<IpNet>>>,
    api_servers: BTreeSet<IpAddr>,
    adopt: BTreeSet<Controller>,
    /// Groups of controllers that are not adopted.
    adoptable_groups: Vec<AdoptableGroup>,
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
    /// The state before the first event. The local slices of the Services in the channel have to be watched.
    pub(super) fn new(
        name: String,
        targets: &WatchTargets,
        local_services: watch::Sender<Coverage>,
    ) -> Self {
        let WatchTargets {
            imports,
            slices,
            node,
            cluster_id,
            traffic,
            vip_ranges,
            service_ranges,
            ..
        } = targets;
        let imports = ObjectList::new(Kind::ServiceImport, imports);
        Self {
            name,
            // Adopted Services need no CRD.
            imports: if targets.adopt.is_empty() { imports } else { imports.optional() },
            slices: ObjectList::new(Kind::EndpointSlice, slices),
            adoption: Adoption::new(targets, local_services),
            node: node.as_ref().map(ValueList::new),
            cluster_id: cluster_id.as_ref().map(ValueList::new),
            traffic: Property::new(TRAFFIC_PROPERTY, traffic, Traffic::parse),
            vip_ranges: vip_ranges
                .as_ref()
                .map(|target| Property::new(VIP_RANGES_PROPERTY, target, VipRangeList::parse)),
            service_ranges: service_ranges.as_ref().map(ValueList::new),
            api_servers: BTreeSet::new(),
            adopt: targets.adopt.clone(),
            adoptable_groups: Vec::new(),
            synced: false,
            last: None,
        }
    }

    /// Applies an update. Returns a batch if the update changes anything.
    pub(super) fn update(&mut self, update: ClusterUpdate) -> Option<EventBatch> {
        let synced = self.synced;
        // Most updates are of slices, and most of these are changes of one.
        let may_be_new_facts = !matches!(
            update,
            ClusterUpdate::Slices(ResourceEvent::Changed(_) | ResourceEvent::Deleted(_))
        );
        let mut events = Vec::new();
        match update {
            ClusterUpdate::Imports(event) => {
                events = self.adoption.take_main(self.imports.apply(event, synced));
            }
            ClusterUpdate::Slices(event) => {
                events = self.adoption.take_main(self.slices.apply(event, synced));
            }
            ClusterUpdate::OtherImports(event) => {
                events = self.adoption.take(List::OtherImports, event);
            }
            ClusterUpdate::Services(event) => events = self.adoption.take(List::Services, event),
            ClusterUpdate::AdoptableSlices(event) => {
                events = self.adoption.take(List::Slices, event);
            }
            ClusterUpdate::LocalServices(services) => events = self.adoption.set_watched(services),
            ClusterUpdate::LocalSlices(event) => {
                events = self.adoption.take(List::LocalSlices, event);
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
                let names = groups.keys().map(String::as_str);
                self.adoptable_groups = adopt::adoptable_groups(names, &self.adopt);
            }
        }
        if !synced {
            events = Vec::new();
            if self.resources().all(|resource| resource.synced) && self.adoption.is_complete() {
                self.synced = true;
                let lists = [&mut self.imports, &mut self.slices].map(ObjectList::relist);
                events = self.adoption.take_main(lists.concat());
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
        let lists = lists.into_iter().chain(self.adoption.resources());
        lists.chain(values.into_iter().flatten())
    }

    fn facts(&self) -> Facts {
        Facts { node: self.node().into(), status: self.status().into() }
    }

    fn node(&self) -> NodeFacts {
        let node = self.node.as_ref().and_then(ValueList::first);
        let ranges = self.service_ranges.iter().flat_map(ValueList::all);
        let ranges: BTreeSet<IpNet> = ranges.flatten().copied().collect();
        NodeFacts {
            zone: node.and_then(|node| node.zone.clone()),
            cluster_id: self.cluster_id.as_ref().and_then(ValueList::first).cloned().flatten(),
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
            adoptable: self.adoption.adoptable(),
            adoptable_groups: self.adoptable_groups.clone(),
            skipped: BTreeMap::new(),
        }
    }
}

/// Applies an event to a resource that is watched.
fn apply<D: Decoder>(values: &mut Option<ValueList<D::Value>>, event: ResourceEvent<D>) {
    if let Some(values) = values {
        values.apply(event);
    }
}

#[cfg(test)]
mod tests;
