//! Objects for tests. Each has the fields of a plain service; a test sets only the fields that it is about.

use std::sync::Arc;

use ipnet::IpNet;

use super::{
    Endpoint, EndpointSlice, EventBatch, ImportPort, Kind, Location, NodeContext, NodeFacts,
    Object, ObjectEvent, ObjectKey, ServiceImport, SlicePort, Timestamp, TopologyHints,
};
use crate::core::store::{ObjectStore, Snapshot};

/// What a store holds after these objects.
pub(crate) fn snapshot(objects: impl IntoIterator<Item = impl Into<Object>>) -> Snapshot {
    let events = objects.into_iter().map(|object| ObjectEvent::Apply(object.into())).collect();
    let mut store = ObjectStore::default();
    store.apply(EventBatch { events, ..EventBatch::default() });
    store.snapshot()
}

impl From<ServiceImport> for Object {
    fn from(import: ServiceImport) -> Self {
        Self::Import(import)
    }
}

impl From<EndpointSlice> for Object {
    fn from(slice: EndpointSlice) -> Self {
        Self::Slice(slice)
    }
}

/// A node of a cluster whose Services have addresses that no test uses.
pub(crate) fn plain_node() -> NodeContext {
    let range: IpNet = "172.30.0.0/16".parse().expect("a range");
    knowing(NodeContext::default(), |facts| facts.service_ranges = Some([range].into()))
}

/// The node with other facts.
pub(crate) fn knowing(mut node: NodeContext, change: impl FnOnce(&mut NodeFacts)) -> NodeContext {
    change(&mut node.facts);
    node
}

/// The key that displays as `name`.
pub(crate) fn key(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').expect("a namespace/name");
    ObjectKey::new(namespace, name)
}

/// A ClusterSetIP import without addresses and ports.
pub(crate) fn import(name: &str) -> ServiceImport {
    ServiceImport {
        created: Some(Timestamp(0)),
        ..ServiceImport::new(Kind::ServiceImport, key(name))
    }
}

impl ServiceImport {
    /// Adds a virtual IP.
    pub(crate) fn ip(mut self, ip: &str) -> Self {
        self.ips.push(ip.to_owned());
        self
    }

    /// Adds a port without a protocol.
    pub(crate) fn port(self, name: &str, port: i32) -> Self {
        self.port_of(name, port, None)
    }

    /// Adds a port.
    pub(crate) fn port_of(mut self, name: &str, port: i32, protocol: Option<&str>) -> Self {
        let protocol = protocol.map(str::to_owned);
        self.ports.push(ImportPort { name: name.to_owned(), protocol, port });
        self
    }

    /// Sets the creation time.
    pub(crate) fn created(mut self, seconds: i64) -> Self {
        self.created = Some(Timestamp(seconds));
        self
    }
}

/// An IPv4 slice of cluster `east` without endpoints and ports.
pub(crate) fn slice(name: &str, service: &str) -> EndpointSlice {
    EndpointSlice {
        key: key(name),
        service: service.into(),
        source_cluster: "east".into(),
        address_type: "IPv4".to_owned(),
        endpoints: [].into(),
        ports: vec![],
        trigger_time: None,
    }
}

impl EndpointSlice {
    /// Makes it a slice of IPv6 addresses.
    pub(crate) fn v6(mut self) -> Self {
        "IPv6".clone_into(&mut self.address_type);
        self
    }

    /// Sets the source cluster.
    pub(crate) fn cluster(mut self, cluster: &str) -> Self {
        self.source_cluster = cluster.into();
        self
    }

    /// Adds a port without a protocol.
    pub(crate) fn port(self, name: &str, port: i32) -> Self {
        self.port_of(name, Some(port), None)
    }

    /// Adds a port.
    pub(crate) fn port_of(mut self, name: &str, port: Option<i32>, protocol: Option<&str>) -> Self {
        let protocol = protocol.map(str::to_owned);
        self.ports.push(SlicePort { name: name.to_owned(), protocol, port });
        self
    }

    /// Adds an endpoint.
    pub(crate) fn endpoint(mut self, endpoint: Endpoint) -> Self {
        let mut endpoints = self.endpoints.into_vec();
        endpoints.push(endpoint);
        self.endpoints = endpoints.into();
        self
    }

    /// Adds an endpoint without conditions.
    pub(crate) fn address(self, address: &str) -> Self {
        self.endpoint(endpoint(address))
    }
}

/// An endpoint without conditions, which is ready.
pub(crate) fn endpoint(address: &str) -> Endpoint {
    Endpoint { address: address.into(), ..Endpoint::default() }
}

impl Endpoint {
    /// Sets the conditions ready, serving and terminating.
    pub(crate) fn conditions(
        mut self,
        ready: impl Into<Option<bool>>,
        serving: impl Into<Option<bool>>,
        terminating: impl Into<Option<bool>>,
    ) -> Self {
        (self.ready, self.serving, self.terminating) =
            (ready.into(), serving.into(), terminating.into());
        self
    }

    /// Makes it terminating, and serving until it is gone.
    pub(crate) fn draining(self) -> Self {
        self.conditions(false, true, true)
    }

    /// Sets the node.
    pub(crate) fn node(mut self, name: &str) -> Self {
        self.location().node_name = Some(name.into());
        self
    }

    /// Sets the zone.
    pub(crate) fn in_zone(mut self, name: &str) -> Self {
        self.location().zone = Some(name.into());
        self
    }

    /// Adds a `forNodes` hint.
    pub(crate) fn for_node(mut self, name: &str) -> Self {
        self.hints().nodes.push(name.to_owned());
        self
    }

    /// Adds a `forZones` hint.
    pub(crate) fn for_zone(mut self, name: &str) -> Self {
        self.hints().zones.push(name.to_owned());
        self
    }

    fn location(&mut self) -> &mut Location {
        Arc::make_mut(self.location.get_or_insert_default())
    }

    fn hints(&mut self) -> &mut TopologyHints {
        Arc::make_mut(self.hints.get_or_insert_default())
    }
}

/// The node `n1` of zone `z1` in the cluster `east`.
pub(crate) fn node() -> NodeContext {
    NodeContext {
        node_name: Some("n1".to_owned()),
        facts: NodeFacts {
            zone: Some("z1".to_owned()),
            cluster_id: Some("east".to_owned()),
            ..NodeFacts::default()
        },
        ..NodeContext::default()
    }
}
