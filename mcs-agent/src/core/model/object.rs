//! ServiceImports, EndpointSlices and their parts, and the events about them that a source sends.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::SystemTime,
};

use mcs_kube::{
    ObjectKey, ServiceType, Tiers,
    report::{Kind, ObjectRef},
};

use super::{NodeFacts, SourceStatus};

/// Seconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timestamp(pub i64);

/// A ServiceImport as read, with the values as written. The CRD validates little, so the rules in
/// `desired` check them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceImport {
    /// ServiceImport, or Service if the agent adopts one as an import.
    pub kind: Kind,
    /// `metadata`.
    pub key: ObjectKey,
    /// `metadata.creationTimestamp`; a manifest can lack it.
    pub created: Option<Timestamp>,
    /// Annotation `multicluster.kubernetes.io/derived-service`.
    pub derived_service: Option<String>,
    /// How to hand it to the agent while its derived Service serves it. The source knows its controller.
    pub remedy: Cow<'static, str>,
    /// Set if its endpoints can be ClusterIPs, which the controller's own gateways alone lead to: how to make its
    /// controller export the addresses of pods.
    pub pod_remedy: Option<&'static str>,
    /// The service that a controller keeps this record of, for people; absent on an import.
    pub record_of: Option<Box<str>>,
    /// `spec.type`.
    pub service_type: ServiceType,
    /// `spec.ips`.
    pub ips: Vec<String>,
    /// `spec.ports`.
    pub ports: Vec<ImportPort>,
    /// `spec.sessionAffinity`.
    pub session_affinity: Option<String>,
    /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
    pub affinity_timeout_seconds: Option<i32>,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: Option<String>,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<Box<str>>,
    /// Which clusters' endpoints are preferred.
    pub cluster_affinity: Option<Box<ClusterAffinity>>,
    /// `status.clusterSelectorResults`, else the annotation that stands for it; or why they cannot be read.
    pub tiers: Option<Box<Result<Tiers, String>>>,
    /// Annotations of the owner for preferences, by their keys, with the values as written.
    pub settings: Box<[(&'static str, Box<str>)]>,
    /// `status.endpointSliceObjects`.
    pub endpoint_slice_objects: Option<String>,
    /// `status.clusters`, sorted. It is empty unless the import names a derived Service and has no
    /// `status.endpointSliceObjects`: the rules compare it with the slices of those imports alone.
    pub clusters: Box<[Arc<str>]>,
}

/// Whether endpoints of this cluster or of the others are preferred, as an annotation of some controllers says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterAffinity {
    /// The annotation's key.
    pub annotation: &'static str,
    /// Its value: `local`, `remote` or `none`, in any case.
    pub value: String,
}

/// An entry of `spec.ports` of a ServiceImport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportPort {
    /// Empty if unnamed.
    pub name: String,
    /// As written; TCP if absent.
    pub protocol: Option<String>,
    /// As written; not checked.
    pub port: i32,
}

/// An imported EndpointSlice as read, with the values as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointSlice {
    /// `metadata`.
    pub key: ObjectKey,
    /// Label `multicluster.kubernetes.io/service-name`: the ServiceImport of the same namespace.
    pub service: Arc<str>,
    /// Label `multicluster.kubernetes.io/source-cluster`; empty without one.
    pub source_cluster: Arc<str>,
    /// `addressType`.
    pub address_type: String,
    /// `endpoints`.
    pub endpoints: Box<[Endpoint]>,
    /// `ports`.
    pub ports: Vec<SlicePort>,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`.
    pub trigger_time: Option<SystemTime>,
}

impl ServiceImport {
    /// One of the type ClusterSetIP that says nothing else.
    pub fn new(kind: Kind, key: ObjectKey) -> Self {
        Self {
            kind,
            key,
            created: None,
            derived_service: None,
            remedy: "to hand it to the agent, let its controller publish its EndpointSlices here"
                .into(),
            pod_remedy: None,
            record_of: None,
            service_type: ServiceType::ClusterSetIp,
            ips: Vec::new(),
            ports: Vec::new(),
            session_affinity: None,
            affinity_timeout_seconds: None,
            internal_traffic_policy: None,
            traffic_distribution: None,
            cluster_affinity: None,
            tiers: None,
            settings: [].into(),
            endpoint_slice_objects: None,
            clusters: [].into(),
        }
    }

    /// The object that the import was read from.
    pub fn read_from(&self) -> ObjectRef {
        ObjectRef { kind: self.kind, key: self.key.clone() }
    }

    /// The value of a setting, as written.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(one, _)| *one == key).map(|(_, value)| &**value)
    }

    /// The Service that serves it without the agent, if it has one.
    pub fn derived_service(&self) -> Option<&str> {
        self.derived_service.as_deref().filter(|name| !name.is_empty())
    }
}

impl EndpointSlice {
    /// The import that this slice belongs to.
    pub fn import(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.key.namespace), name: Arc::clone(&self.service) }
    }

    /// Every address and port that its endpoints have, of any protocol and in any condition.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let ports = self.ports.iter().filter_map(|port| u16::try_from(port.port?).ok());
        let ip = |one: &Endpoint| match one.address {
            EndpointAddress::Ip(ip) => Some(ip),
            EndpointAddress::Absent | EndpointAddress::Other(_) => None,
        };
        ports.flat_map(move |port| {
            self.endpoints.iter().filter_map(ip).map(move |ip| SocketAddr::new(ip, port))
        })
    }

    /// Whether `other` is equal but for `trigger_time`, which no rule reads.
    pub fn has_same_content(&self, other: &Self) -> bool {
        let Self { key, service, source_cluster, address_type, endpoints, ports, trigger_time: _ } =
            self;
        *key == other.key
            && *service == other.service
            && *source_cluster == other.source_cluster
            && *address_type == other.address_type
            && *endpoints == other.endpoints
            && *ports == other.ports
    }
}

/// An entry of `endpoints` of an EndpointSlice. A clusterset can have millions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    /// The first of `addresses`; like kube-proxy, the agent ignores the others.
    pub address: EndpointAddress,
    /// `conditions.ready`.
    pub ready: Option<bool>,
    /// `conditions.serving`.
    pub serving: Option<bool>,
    /// `conditions.terminating`.
    pub terminating: Option<bool>,
    /// Where it runs; absent if it names neither node nor zone.
    pub location: Option<Arc<Location>>,
    /// `hints`; absent if they are empty.
    pub hints: Option<Arc<TopologyHints>>,
}

/// An address as written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum EndpointAddress {
    /// The endpoint has none.
    #[default]
    Absent,
    /// A valid IPv4 or IPv6 address.
    Ip(IpAddr),
    /// Any other text.
    Other(Box<str>),
}

impl From<&str> for EndpointAddress {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Other(text.into()), Self::Ip)
    }
}

/// Where an endpoint runs. The endpoints of one node share it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Location {
    /// `nodeName`, in the source cluster.
    pub node_name: Option<Box<str>>,
    /// `zone`.
    pub zone: Option<Box<str>>,
}

/// The nodes and zones whose clients should use an endpoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TopologyHints {
    /// `forNodes[].name`.
    pub nodes: Vec<String>,
    /// `forZones[].name`.
    pub zones: Vec<String>,
}

impl Endpoint {
    /// The name of its node in the source cluster.
    pub fn node_name(&self) -> Option<&str> {
        self.location.as_ref()?.node_name.as_deref()
    }

    /// The zone of its node.
    pub fn zone(&self) -> Option<&str> {
        self.location.as_ref()?.zone.as_deref()
    }

    /// The nodes of its hints.
    pub fn for_nodes(&self) -> &[String] {
        self.hints.as_ref().map_or(&[], |hints| &hints.nodes)
    }

    /// The zones of its hints.
    pub fn for_zones(&self) -> &[String] {
        self.hints.as_ref().map_or(&[], |hints| &hints.zones)
    }
}

/// An entry of `ports` of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// Empty if unnamed.
    pub name: String,
    /// As written; TCP if absent.
    pub protocol: Option<String>,
    /// As written; not checked.
    pub port: Option<i32>,
}

/// An object of any kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// See [`Kind::ServiceImport`].
    Import(ServiceImport),
    /// See [`Kind::EndpointSlice`].
    Slice(EndpointSlice),
}

impl Object {
    /// Its kind in the store, and its key.
    pub fn reference(&self) -> ObjectRef {
        match self {
            Self::Import(import) => {
                ObjectRef { kind: Kind::ServiceImport, key: import.key.clone() }
            }
            Self::Slice(slice) => ObjectRef { kind: Kind::EndpointSlice, key: slice.key.clone() },
        }
    }
}

/// A change of objects. All sources report changes in this form. `T`: what an object was read as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectEvent<T = Object> {
    /// The object exists with this content.
    Apply(T),
    /// The object does not exist any more.
    Delete(ObjectRef),
    /// The object exists but cannot be read as its kind. The agent stops using it and reports it.
    Malformed {
        /// The object.
        object: ObjectRef,
        /// The error and its place.
        message: String,
    },
    /// The complete list of a kind. Other objects of this kind do not exist; the kind is synced.
    Relist {
        /// The kind.
        kind: Kind,
        /// Every object of this kind that can be read.
        objects: Vec<T>,
    },
}

impl<T> ObjectEvent<T> {
    /// The event about what each object becomes. An object can become nothing.
    pub(crate) fn filter_map<U>(
        self,
        mut to: impl FnMut(T) -> Option<U>,
    ) -> Option<ObjectEvent<U>> {
        Some(match self {
            Self::Apply(object) => ObjectEvent::Apply(to(object)?),
            Self::Delete(object) => ObjectEvent::Delete(object),
            Self::Malformed { object, message } => ObjectEvent::Malformed { object, message },
            Self::Relist { kind, objects } => {
                ObjectEvent::Relist { kind, objects: objects.into_iter().filter_map(to).collect() }
            }
        })
    }
}

/// Changes that belong together, and the status of the source after them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventBatch {
    /// The store applies them in this order.
    pub events: Vec<ObjectEvent>,
    /// Facts about the node. They replace the facts of the batch before. Most batches share one value.
    pub node: Arc<NodeFacts>,
    /// The status of the source. It replaces the status of the batch before. Most batches share one value.
    pub status: Arc<SourceStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millions_of_endpoints_fit_into_memory() {
        assert!(size_of::<Endpoint>() <= 48, "{} bytes", size_of::<Endpoint>());
    }
}
