//! This cluster: its exports, its imports, its id and its addresses.

mod addresses;
mod changes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use ipnet::IpNet;
use mcs_kube::{ObjectKey, ResourceEvent, SELECTOR_RESULTS, VipRangeList, WatchTarget};

use crate::core::{
    clusterset::{
        Actual, ActualDerived, ActualSlice, ClusterId, Export, ExportSource, ExportState, Import,
        IpFamily, Owner, Properties, ServiceName, SourceSlice, derived_name, export_state,
        well_known,
    },
    feed::Feed,
    objects::{
        ExportDecoder, ExportObject, ImportDecoder, ImportObject, ImportedSliceDecoder,
        LocalSliceDecoder, MCS_GROUP, MCS_VERSIONS, NamespaceDecoder, NodeDecoder, NodeObject,
        PropertyDecoder, PropertyObject, RangeDecoder, ServiceDecoder, ServiceObject,
    },
};

/// An event of one of the watches of this cluster.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnEvent {
    /// ServiceExports.
    Exports(ResourceEvent<ExportDecoder>),
    /// Services.
    Services(ResourceEvent<ServiceDecoder>),
    /// Slices of Services.
    Slices(ResourceEvent<LocalSliceDecoder>),
    /// Namespaces.
    Namespaces(ResourceEvent<NamespaceDecoder>),
    /// ClusterProperties.
    Properties(ResourceEvent<PropertyDecoder>),
    /// ServiceImports.
    Imports(ResourceEvent<ImportDecoder>),
    /// Slices of imports, whoever writes them.
    ImportedSlices(ResourceEvent<ImportedSliceDecoder>),
    /// ServiceCIDRs.
    Ranges(ResourceEvent<RangeDecoder>),
    /// Nodes.
    Nodes(ResourceEvent<NodeDecoder>),
}

/// The namespace and name of the Service of the API server, and of its slice.
const API_SERVERS: (&str, &str) = ("default", "kubernetes");

/// A watched resource of this cluster, as in [`OwnEvent`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum OwnResource {
    Exports,
    Services,
    Slices,
    Namespaces,
    Properties,
    Imports,
    ImportedSlices,
    Ranges,
    Nodes,
}

impl OwnResource {
    /// All of them, in the order of their declaration.
    const ALL: [Self; 9] = [
        Self::Exports,
        Self::Services,
        Self::Slices,
        Self::Namespaces,
        Self::Properties,
        Self::Imports,
        Self::ImportedSlices,
        Self::Ranges,
        Self::Nodes,
    ];

    /// What its watch reads.
    pub(crate) fn target(self) -> WatchTarget {
        let of_core = |kind, plural| WatchTarget::all("", &["v1"], kind, plural);
        let slices = |purpose, labels: String| WatchTarget {
            purpose: Some(purpose),
            labels: Some(labels),
            ..WatchTarget::all("discovery.k8s.io", &["v1"], "EndpointSlice", "endpointslices")
        };
        let optional =
            |without, target: WatchTarget| WatchTarget { without: Some(without), ..target };
        let service = well_known::SERVICE_NAME;
        match self {
            Self::Exports => {
                WatchTarget::all(MCS_GROUP, &MCS_VERSIONS, "ServiceExport", "serviceexports")
            }
            Self::Services => of_core("Service", "services"),
            Self::Slices => slices("local", format!("kubernetes.io/service-name,!{service}")),
            Self::Namespaces => of_core("Namespace", "namespaces"),
            Self::Properties => optional(
                "the id of the cluster has to be given",
                WatchTarget::all(
                    "about.k8s.io",
                    &MCS_VERSIONS,
                    "ClusterProperty",
                    "clusterproperties",
                ),
            ),
            Self::Imports => {
                WatchTarget::all(MCS_GROUP, &MCS_VERSIONS, "ServiceImport", "serviceimports")
            }
            Self::ImportedSlices => slices("imported", service.to_owned()),
            Self::Ranges => optional(
                "the ranges of Services are unknown",
                WatchTarget::all("networking.k8s.io", &["v1"], "ServiceCIDR", "servicecidrs"),
            ),
            Self::Nodes => optional(
                "peers may have endpoints with addresses of this cluster's nodes",
                of_core("Node", "nodes"),
            ),
        }
    }
}

/// The imported objects of one service.
#[derive(Default, Debug)]
struct Imported {
    import: Option<ImportObject>,
    slices: BTreeMap<Arc<str>, ActualSlice>,
    /// The slices that others wrote, with the cluster that each names.
    others: BTreeMap<Arc<str>, Option<ClusterId>>,
    /// The keys of labels and annotations that this controller last applied. Others may have added theirs.
    applied: Option<[BTreeSet<Arc<str>>; 2]>,
}

impl Imported {
    fn is_empty(&self) -> bool {
        self.import.is_none() && self.slices.is_empty() && self.others.is_empty()
    }
}

/// The objects of this cluster.
#[derive(Debug)]
pub struct OwnCluster {
    feeds: [Feed; OwnResource::ALL.len()],
    exports: BTreeMap<ServiceName, ExportObject>,
    /// ServiceExports with a name that no Service can have, and without the condition `Valid`.
    misnamed: BTreeSet<ObjectKey>,
    services: HashMap<ServiceName, ServiceObject>,
    /// The Service that has a ClusterIP.
    cluster_ips: HashMap<IpAddr, ServiceName>,
    slices: HashMap<ServiceName, BTreeMap<Arc<str>, Arc<SourceSlice>>>,
    /// The Service that a slice belongs to, by namespace and name.
    local_owners: HashMap<ObjectKey, ServiceName>,
    namespaces: BTreeSet<Arc<str>>,
    properties: BTreeMap<Arc<str>, PropertyObject>,
    /// The ClusterProperties that peers get, and the number of those left out.
    published_properties: (Arc<Properties>, usize),
    /// The ranges of ClusterSetIPs that agents read. Cached: each plan needs them.
    present_vip_ranges: Option<VipRangeList>,
    imported: HashMap<ServiceName, Imported>,
    /// The import that a slice belongs to, by namespace and name.
    slice_owners: HashMap<ObjectKey, ServiceName>,
    ranges: BTreeMap<Arc<str>, Vec<IpNet>>,
    /// The ranges of Services from the command line, which replace ServiceCIDRs.
    given_ranges: Vec<IpNet>,
    /// The IP families that Services and the controller's own imports have had. Cached: each plan needs them.
    families: BTreeSet<IpFamily>,
    /// The namespaces in which features follow every Service, exported or not.
    pub(crate) followed: BTreeSet<Arc<str>>,
    /// The exported annotations that features give exports.
    given_annotations: HashMap<ServiceName, BTreeMap<Arc<str>, Arc<str>>>,
    nodes: BTreeMap<Arc<str>, NodeObject>,
    /// The addresses that nodes report.
    node_addresses: OnceLock<Arc<BTreeMap<IpAddr, Arc<str>>>>,
    /// The pod ranges of all nodes, merged: each import is compared with them.
    pod_ranges: OnceLock<Vec<IpNet>>,
}

/// The effects of an event.
#[derive(Default, Debug)]
pub struct OwnChanges {
    /// Affected services.
    pub services: BTreeSet<ServiceName>,
    /// Namespaces in which every service is affected.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Everything is affected.
    pub all: bool,
    /// Addresses that a node has gained or lost.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether pod ranges of nodes have changed.
    pub pod_ranges: bool,
    /// ClusterIPs that a Service has gained or lost, and those of Services that have their first slice or lost their last.
    pub cluster_ips: BTreeSet<IpAddr>,
}

impl OwnChanges {
    fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    fn of(services: impl IntoIterator<Item = ServiceName>) -> Self {
        Self { services: services.into_iter().collect(), ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        self.services.extend(other.services);
        self.namespaces.extend(other.namespaces);
        self.all |= other.all;
        self.pod_ranges |= other.pod_ranges;
        toggle(&mut self.addresses, other.addresses);
        toggle(&mut self.cluster_ips, other.cluster_ips);
    }
}

/// A list names most of the cleared objects again.
fn toggle(addresses: &mut BTreeSet<IpAddr>, others: BTreeSet<IpAddr>) {
    for address in others {
        if !addresses.remove(&address) {
            addresses.insert(address);
        }
    }
}

impl OwnCluster {
    /// Before the first read. `given_ranges`: the ranges of the cluster's Services; empty: as its ServiceCIDRs say.
    pub fn new(given_ranges: Vec<IpNet>) -> Self {
        let mut own = Self {
            feeds: OwnResource::ALL.map(|resource| Feed::new(&resource.target())),
            exports: BTreeMap::new(),
            misnamed: BTreeSet::new(),
            services: HashMap::new(),
            cluster_ips: HashMap::new(),
            slices: HashMap::new(),
            local_owners: HashMap::new(),
            namespaces: BTreeSet::new(),
            properties: BTreeMap::new(),
            published_properties: Default::default(),
            present_vip_ranges: None,
            imported: HashMap::new(),
            slice_owners: HashMap::new(),
            ranges: BTreeMap::new(),
            given_ranges,
            families: BTreeSet::new(),
            followed: BTreeSet::new(),
            given_annotations: HashMap::new(),
            nodes: BTreeMap::new(),
            node_addresses: OnceLock::new(),
            pod_ranges: OnceLock::new(),
        };
        // ServiceCIDRs are not read.
        own.feeds[OwnResource::Ranges as usize].synced = !own.given_ranges.is_empty();
        own
    }

    /// Whether a tenant makes this change. What this controller writes itself does not count.
    pub fn is_changed_by_tenant(&self, event: &OwnEvent) -> bool {
        match event {
            OwnEvent::Imports(_) | OwnEvent::ImportedSlices(_) => false,
            OwnEvent::Exports(ResourceEvent::Changed(object)) => {
                let former =
                    changes::service_name(&object.key()).and_then(|name| self.exports.get(&name));
                let (Some(former), Ok(export)) = (former, &object.decoded) else { return true };
                *export != ExportObject { conditions: export.conditions.clone(), ..former.clone() }
            }
            _ => true,
        }
    }

    /// Applies an event. Returns its effects.
    pub fn apply(&mut self, event: OwnEvent) -> OwnChanges {
        match event {
            OwnEvent::Exports(event) => self.take(OwnResource::Exports, event, Self::change_export),
            OwnEvent::Services(event) => {
                self.take(OwnResource::Services, event, Self::change_service)
            }
            OwnEvent::Slices(event) => self.take(OwnResource::Slices, event, Self::change_slice),
            OwnEvent::Namespaces(event) => {
                self.take(OwnResource::Namespaces, event, Self::change_namespace)
            }
            OwnEvent::Properties(event) => {
                self.take(OwnResource::Properties, event, Self::change_property)
            }
            OwnEvent::Imports(event) => self.take(OwnResource::Imports, event, Self::change_import),
            OwnEvent::ImportedSlices(event) => {
                self.take(OwnResource::ImportedSlices, event, Self::change_imported_slice)
            }
            OwnEvent::Ranges(event) => self.take(OwnResource::Ranges, event, Self::change_range),
            OwnEvent::Nodes(event) => self.take(OwnResource::Nodes, event, Self::change_node),
        }
    }

    /// The Service of this name.
    pub(crate) fn service(&self, name: &ServiceName) -> Option<&ServiceObject> {
        self.services.get(name)
    }

    /// The Services of namespaces in which features follow them.
    pub fn followed(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.keys().filter(|name| self.followed.contains(name.namespace()))
    }

    /// Gives an export annotations that its ServiceExport lacks.
    pub(crate) fn give_annotations(
        &mut self,
        name: &ServiceName,
        annotations: BTreeMap<Arc<str>, Arc<str>>,
    ) {
        if annotations.is_empty() {
            self.given_annotations.remove(name);
        } else {
            self.given_annotations.insert(name.clone(), annotations);
        }
    }

    /// Whether the Service stands for an import.
    pub fn is_derived(&self, name: &ServiceName) -> bool {
        self.services.get(name).is_some_and(|service| service.is_derived)
    }

    /// Whether every resource was listed once.
    pub fn is_synced(&self) -> bool {
        self.feeds.iter().all(|feed| feed.synced)
    }

    /// Why what this cluster exports cannot be read now.
    pub fn exports_problem(&self) -> Option<String> {
        let resources = [OwnResource::Exports, OwnResource::Services, OwnResource::Slices];
        resources.into_iter().find_map(|resource| self.feed(resource).problem())
    }

    const fn feed(&self, resource: OwnResource) -> &Feed {
        &self.feeds[resource as usize]
    }

    /// The version in which ServiceExports are served.
    pub fn export_version(&self) -> &str {
        self.feed(OwnResource::Exports).version.as_deref().unwrap_or(MCS_VERSIONS[0])
    }

    /// The version in which ServiceImports are served.
    pub fn import_version(&self) -> &str {
        self.feed(OwnResource::Imports).version.as_deref().unwrap_or(MCS_VERSIONS[0])
    }

    /// Whether the ClusterProperties were read, or are not served.
    pub fn has_properties(&self) -> bool {
        let feed = self.feed(OwnResource::Properties);
        feed.synced || feed.absent
    }

    /// Whether the ClusterProperties are known: readable, or not served.
    pub fn knows_properties(&self) -> bool {
        let feed = self.feed(OwnResource::Properties);
        feed.version.is_some() || feed.absent
    }

    /// Whether the ClusterProperties were read, and can be written.
    pub fn may_write_properties(&self) -> bool {
        let feed = self.feed(OwnResource::Properties);
        feed.version.is_some() && !feed.absent
    }

    /// The id of the cluster as its ClusterProperty says it.
    pub fn cluster_id(&self) -> Option<&str> {
        self.property(well_known::CLUSTER_ID_PROPERTY)
    }

    /// The name of the clusterset as its ClusterProperty says it.
    pub fn clusterset(&self) -> Option<&str> {
        self.property(well_known::CLUSTERSET_PROPERTY)
    }

    /// The value of a ClusterProperty.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(|property| &*property.value)
    }

    /// The uid of a ClusterProperty.
    pub fn property_uid(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(|property| &*property.uid)
    }

    /// The ClusterProperties that peers get, and how many they do not get.
    pub const fn published_properties(&self) -> &(Arc<Properties>, usize) {
        &self.published_properties
    }

    /// The ranges of ClusterSetIPs that agents were told.
    pub const fn present_vip_ranges(&self) -> Option<&VipRangeList> {
        self.present_vip_ranges.as_ref()
    }

    /// The version in which ClusterProperties are served.
    pub fn property_version(&self) -> &str {
        self.feed(OwnResource::Properties).version.as_deref().unwrap_or(MCS_VERSIONS[0])
    }

    /// Whether the namespace exists.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }

    /// The ServiceExport of this name.
    pub fn export_object(&self, name: &ServiceName) -> Option<&ExportObject> {
        self.exports.get(name)
    }

    /// The ServiceExports with a name that no Service can have, and without a condition that says so.
    pub const fn misnamed(&self) -> &BTreeSet<ObjectKey> {
        &self.misnamed
    }

    /// The names of the ServiceExports.
    pub fn exported(&self) -> impl Iterator<Item = &ServiceName> {
        self.exports.keys()
    }

    /// The export of this cluster, with the VIPs that its import has.
    pub fn export(&self, name: &ServiceName, cluster: &ClusterId) -> Option<Export> {
        let object = self.exports.get(name)?;
        let source = match self.services.get(name).map(|service| &service.source) {
            None => ExportSource::Missing,
            Some(ExportSource::Service(spec)) => {
                let mut spec = spec.clone();
                spec.labels.clone_from(&object.labels);
                spec.annotations = self.exported_annotations(name, object);
                ExportSource::Service(spec)
            }
            Some(other) => other.clone(),
        };
        Some(Export {
            cluster: cluster.clone(),
            name: name.clone(),
            created: object.created,
            source,
            vips: self.vips(name).to_vec(),
            audience: object.audience.clone(),
        })
    }

    /// The exported annotations: those of the ServiceExport, and those that features give it.
    fn exported_annotations(
        &self,
        name: &ServiceName,
        export: &ExportObject,
    ) -> BTreeMap<Arc<str>, Arc<str>> {
        let mut annotations = self.given_annotations.get(name).cloned().unwrap_or_default();
        annotations.extend(export.annotations.clone());
        annotations
    }

    /// The slices of a Service of this cluster.
    pub fn slices(&self, name: &ServiceName) -> Option<&BTreeMap<Arc<str>, Arc<SourceSlice>>> {
        self.slices.get(name)
    }

    /// The ServiceImport of this name.
    pub fn import_object(&self, name: &ServiceName) -> Option<&ImportObject> {
        self.imported.get(name)?.import.as_ref()
    }

    /// Whether there is an imported slice of this `metadata.name`.
    pub fn has_slice(&self, service: &ServiceName, slice: &str) -> bool {
        self.imported.get(service).is_some_and(|imported| imported.slices.contains_key(slice))
    }

    /// The imported slices of a service, by `metadata.name`.
    pub fn imported_slices(
        &self,
        service: &ServiceName,
    ) -> Option<&BTreeMap<Arc<str>, ActualSlice>> {
        self.imported.get(service).map(|imported| &imported.slices)
    }

    /// The services with a ServiceImport or imported slices in this cluster.
    pub fn imported(&self) -> impl Iterator<Item = &ServiceName> {
        self.imported.keys()
    }

    /// Whether a service has slices of that cluster, or its import names the cluster. An import without clusters may be of
    /// any cluster.
    pub fn is_imported_from(&self, name: &ServiceName, cluster: &ClusterId) -> bool {
        self.imported.get(name).is_some_and(|imported| {
            let named = imported.import.iter().map(|import| &import.actual.status.clusters);
            let is_named =
                named.into_iter().any(|named| named.is_empty() || named.contains(cluster));
            is_named || imported.slices.values().any(|slice| slice.cluster == *cluster)
        })
    }

    /// The VIPs of a ServiceImport, whoever writes it. A record has those of an import, or a ClusterIP.
    pub fn vips(&self, name: &ServiceName) -> &[IpAddr] {
        let object = self.import_object(name).filter(|object| !object.actual.is_record);
        object.map_or(&[], |object| &object.actual.import.ips)
    }

    /// The objects of one service in this cluster.
    pub fn actual(&self, name: &ServiceName) -> Actual {
        let imported = self.imported.get(name);
        let import = imported.and_then(|imported| {
            let mut actual = imported.import.as_ref()?.actual.clone();
            if let (Owner::Us, Some([labels, annotations])) = (&actual.owner, &imported.applied) {
                actual.import.spec.labels.retain(|key, _| labels.contains(key));
                actual.import.spec.annotations.retain(|key, _| annotations.contains(key));
                actual.import.has_derived_service &=
                    annotations.contains(well_known::DERIVED_SERVICE);
                actual.import.tiers.take_if(|_| !annotations.contains(SELECTOR_RESULTS));
            }
            Some(actual)
        });
        let others: BTreeSet<_> =
            imported.iter().flat_map(|imported| imported.others.values().cloned()).collect();
        let vips = self.vips(name);
        let is_of_service = |vip: &IpAddr| {
            let service = self.cluster_ips.get(vip);
            service.is_some_and(|one| !others.is_empty() || self.slices.contains_key(one))
        };
        Actual {
            import,
            slices: imported.map(|imported| imported.slices.clone()).unwrap_or_default(),
            has_services: !vips.is_empty() && vips.iter().all(is_of_service),
            others,
            derived: self.derived(name),
            export_conditions: self.exports.get(name).map(ExportObject::known_conditions),
        }
    }

    /// What the conditions of an export say; `None`: there is no export.
    pub fn export_state(&self, name: &ServiceName) -> Option<ExportState> {
        let export = self.exports.get(name)?;
        Some(export_state(&export.known_conditions()))
    }

    /// The Service with the name of an import's derived Service.
    pub fn derived(&self, import: &ServiceName) -> Option<ActualDerived> {
        let name = ServiceName::new(import.namespace(), &derived_name(import)).ok()?;
        self.services.get(&name).map(ServiceObject::as_derived)
    }

    /// Records the labels and annotations with which this controller applied an import.
    pub fn note_applied(&mut self, import: &Import) {
        let keys = |map: &BTreeMap<Arc<str>, Arc<str>>| map.keys().cloned().collect();
        let mut annotations: BTreeSet<Arc<str>> = keys(&import.spec.annotations);
        annotations.extend(import.has_derived_service.then(|| well_known::DERIVED_SERVICE.into()));
        annotations.extend(import.tiers.iter().map(|_| SELECTOR_RESULTS.into()));
        let imported = self.imported.entry(import.name.clone()).or_default();
        imported.applied = Some([keys(&import.spec.labels), annotations]);
    }
}
