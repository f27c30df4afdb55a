//! What was read of a cluster, a list or a value for each watched resource, and the batches that follow from it: nothing
//! before everything was read once, then each change.

#[cfg(test)]
pub(crate) mod tests;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use mcs_kube::{
    Decoder, PropertyDecoder, RangeDecoder, ResourceEvent, TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY,
    VipRangeList, WatchTarget, WatchedObject, discovery::ApiGroups,
};

use super::{
    WatchTargets,
    decoders::{ImportDecoder, NodeDecoder, NodeValues, SliceDecoder},
};
use crate::core::{
    model::{
        EventBatch, Kind, KindStatus, NodeFacts, ObjectEvent, ObjectKey, ObjectRef, SourceProblem,
        SourceStatus, Traffic, shorten,
    },
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

/// What to do about a missing right.
const ADVICE_FORBIDDEN: &str = "; grant it as the ClusterRole of the chart does";

/// The state of one watched resource.
#[derive(Debug)]
pub(crate) struct WatchedResource {
    /// Plural and group, such as `serviceimports.multicluster.x-k8s.io`.
    resource: String,
    /// The versions that the agent can read.
    versions: Vec<String>,
    /// The version of the latest list.
    pub(super) version: Option<String>,
    /// Whether it was listed once, or is known to be unavailable and not needed.
    pub(super) synced: bool,
    /// As in [`WatchTarget`].
    without: Option<&'static str>,
    /// Why it cannot be read now.
    pub(super) failure: Option<String>,
    /// The time of the last answer before that failure.
    last_heard: Option<SystemTime>,
}

/// What is used of the objects of one watched resource, or why an object does not decode.
#[derive(Debug)]
pub(crate) struct WatchedList<T> {
    pub(crate) resource: WatchedResource,
    /// Whether a cluster need not have the resource.
    is_optional: bool,
    objects: BTreeMap<ObjectKey, Decoded<T>>,
}

type Decoded<T> = Result<T, String>;

impl WatchedResource {
    pub(super) fn new(target: &WatchTarget) -> Self {
        let resource = target.versions.first().map(|api| match api.group.as_str() {
            "" => api.plural.clone(),
            group => format!("{}.{group}", api.plural),
        });
        let purpose = target.purpose.map(|purpose| format!(" ({purpose})")).unwrap_or_default();
        Self {
            resource: resource.unwrap_or_default() + &purpose,
            versions: target.versions.iter().map(|api| api.version.clone()).collect(),
            version: None,
            synced: false,
            without: target.without,
            failure: None,
            last_heard: None,
        }
    }

    /// Nothing has to be read of it now.
    pub(crate) fn set_unneeded(&mut self) {
        self.synced = true;
        self.failure = None;
    }

    /// Records what an event says beside objects.
    pub(super) fn record<D: Decoder>(&mut self, event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { version, .. } => {
                self.version = Some(version.clone());
                self.synced = true;
                self.failure = None;
            }
            ResourceEvent::Changed(_)
            | ResourceEvent::Deleted(_)
            | ResourceEvent::LeftOut { .. } => {}
            ResourceEvent::Recovered => self.failure = None,
            ResourceEvent::Failing { reason, is_forbidden, last_heard } => {
                let advice = if *is_forbidden { ADVICE_FORBIDDEN } else { "" };
                self.failure = Some(format!("{reason}{advice}"));
                self.last_heard = *last_heard;
                self.synced |= *is_forbidden && self.without.is_some();
            }
            ResourceEvent::NotServed { last_heard } => {
                let versions = self.versions.join(" or ");
                // Groups of Kubernetes itself end alike, and have no CRD.
                let is_built_in = self.resource.ends_with(".k8s.io")
                    && !self.resource.ends_with(".x-k8s.io")
                    && !self.resource.ends_with(".about.k8s.io");
                let advice =
                    if is_built_in { "it needs a newer Kubernetes" } else { "install its CRD" };
                self.failure =
                    Some(format!("the API server does not serve it as {versions}: {advice}"));
                self.last_heard = *last_heard;
            }
        }
    }

    pub(super) fn status(&self) -> KindStatus {
        KindStatus {
            resource: self.resource.clone(),
            version: self.version.clone(),
            synced: self.synced,
            known_until: self.known_until(),
        }
    }

    fn known_until(&self) -> Option<u64> {
        let last_heard = self.last_heard.filter(|_| self.synced && self.failure.is_some())?;
        Some(last_heard.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    pub(super) fn problem(&self) -> Option<SourceProblem> {
        let consequence = match (self.without, &self.version) {
            (_, None) if !self.synced => "the agent changes nothing until it can read it",
            (Some(without), None) => without,
            _ => "the agent keeps using what it last read",
        };
        let failure = self.failure.as_ref()?;
        let message = format!("{failure}; {consequence}");
        Some(SourceProblem { place: self.resource.clone(), message })
    }
}

impl<T> WatchedList<T> {
    pub(crate) fn new(target: &WatchTarget) -> Self {
        let resource = WatchedResource::new(target);
        Self { resource, is_optional: false, objects: BTreeMap::new() }
    }

    /// A cluster need not have the resource: one that is not served counts as an empty list at first.
    pub(crate) fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.objects.values().flatten()
    }

    /// Applies an event, and keeps what it says. `read`: what is used of an object, if anything is.
    pub(crate) fn keep<D: Decoder>(
        &mut self,
        event: ResourceEvent<D>,
        read: impl Fn(D::Value) -> Option<T>,
    ) {
        let is_absent = matches!(event, ResourceEvent::NotServed { .. });
        match self.change(event, read) {
            Some((key, Some(object))) => drop(self.objects.insert(key, object)),
            Some((key, None)) => drop(self.objects.remove(&key)),
            None if is_absent && self.is_optional && self.objects.is_empty() => {
                self.resource.set_unneeded();
            }
            None => {}
        }
    }

    /// Applies an event. Returns those for the store, which has what was kept.
    pub(crate) fn pass<D: Decoder>(
        &mut self,
        kind: Kind,
        event: ResourceEvent<D>,
        read: impl Fn(D::Value) -> Option<T>,
    ) -> Vec<ObjectEvent<T>> {
        let is_list = matches!(event, ResourceEvent::Listed { .. });
        // The API server answers 503, not 404, until it has read its CRDs.
        let is_absent = matches!(event, ResourceEvent::NotServed { .. });
        if let Some((key, decoded)) = self.change(event, read) {
            let object = ObjectRef { kind, key };
            return vec![match decoded {
                Some(Ok(object)) => ObjectEvent::Apply(object),
                Some(Err(message)) => ObjectEvent::Malformed { object, message },
                None => ObjectEvent::Delete(object),
            }];
        }
        if is_absent && self.is_optional && self.resource.version.is_none() {
            self.resource.set_unneeded();
        }
        if is_list { self.relist(kind) } else { Vec::new() }
    }

    /// Returns events with every object, and forgets the objects.
    pub(super) fn relist(&mut self, kind: Kind) -> Vec<ObjectEvent<T>> {
        let mut objects = Vec::new();
        let mut malformed = Vec::new();
        for (key, decoded) in std::mem::take(&mut self.objects) {
            match decoded {
                Ok(object) => objects.push(object),
                Err(message) => {
                    let object = ObjectRef { kind, key };
                    malformed.push(ObjectEvent::Malformed { object, message });
                }
            }
        }
        let relist = ObjectEvent::Relist { kind, objects };
        std::iter::once(relist).chain(malformed).collect()
    }

    /// Applies an event: keeps a list, and returns what becomes of a single object.
    fn change<D: Decoder>(
        &mut self,
        event: ResourceEvent<D>,
        read: impl Fn(D::Value) -> Option<T>,
    ) -> Option<(ObjectKey, Option<Decoded<T>>)> {
        self.resource.record(&event);
        let entry =
            |object: WatchedObject<D>| (object.key(), object.decoded.map(&read).transpose());
        match event {
            ResourceEvent::Listed { objects, .. } => {
                let entries = objects.into_iter().map(entry);
                self.objects = entries.filter_map(|(key, one)| Some((key, one?))).collect();
                None
            }
            ResourceEvent::Changed(object) => Some(entry(object)),
            ResourceEvent::Deleted(object) => Some((object.key(), None)),
            ResourceEvent::NotServed { .. }
            | ResourceEvent::Failing { .. }
            | ResourceEvent::Recovered
            | ResourceEvent::LeftOut { .. } => None,
        }
    }
}

/// The value that a ClusterProperty last had that can be used. Without the object it is the default.
pub(super) struct Property<V> {
    name: &'static str,
    list: WatchedList<Option<String>>,
    parse: fn(&str) -> Result<V, String>,
    value: V,
    /// Why the present value cannot be used.
    problem: Option<String>,
}

impl<V: Clone + Default> Property<V> {
    pub(super) fn new(
        name: &'static str,
        target: &WatchTarget,
        parse: fn(&str) -> Result<V, String>,
    ) -> Self {
        let list = WatchedList::new(target).optional();
        Self { name, list, parse, value: V::default(), problem: None }
    }

    /// A value that cannot be used changes nothing.
    pub(super) fn apply(&mut self, event: ResourceEvent<PropertyDecoder>) {
        self.list.keep(event, Some);
        let parse = |value: &Option<String>| (self.parse)(value.as_deref().unwrap_or_default());
        match self.list.values().next().map_or_else(|| Ok(V::default()), parse) {
            Ok(value) => (self.value, self.problem) = (value, None),
            Err(problem) => self.problem = Some(problem),
        }
    }

    pub(super) fn value(&self) -> V {
        self.value.clone()
    }

    pub(super) const fn resource(&self) -> &WatchedResource {
        &self.list.resource
    }

    #[cfg(test)]
    pub(super) const fn resource_mut(&mut self) -> &mut WatchedResource {
        &mut self.list.resource
    }

    pub(super) fn problem(&self) -> Option<SourceProblem> {
        Some(SourceProblem {
            place: format!("ClusterProperty {}", self.name),
            message: format!(
                "spec.value: {}; what the agent last read there still counts",
                shorten(self.problem.as_deref()?)
            ),
        })
    }
}
