use std::{fmt, net::IpAddr, sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};

/// Namespace and name. Displays as `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Never empty.
    pub namespace: Arc<str>,
    /// Never empty.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds that the agent reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// `multicluster.x-k8s.io` ServiceImport.
    ServiceImport,
    /// `discovery.k8s.io` EndpointSlice that carries the MCS service-name label.
    EndpointSlice,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceImport => "ServiceImport",
            Self::EndpointSlice => "EndpointSlice",
        })
    }
}

/// One object of one kind. Displays as `ServiceImport namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    #[serde(flatten)]
    pub key: ObjectKey,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// Seconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timestamp(pub i64);

/// `spec.type` of a ServiceImport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceType {
    /// Has virtual IPs; ours.
    ClusterSetIp,
    /// Left to DNS.
    Headless,
}

/// A ServiceImport as read: names and shapes are ours, values are the author's. The CRD validates
/// next to nothing, so the rules in `desired` do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceImport {
    /// `metadata`.
    pub key: ObjectKey,
    /// `metadata.creationTimestamp`. A manifest may lack it.
    pub created: Option<Timestamp>,
    /// Annotation `multicluster.kubernetes.io/derived-service`.
    pub derived_service: Option<String>,
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
    /// `status.endpointSliceObjects`.
    pub endpoint_slice_objects: Option<String>,
}

/// An entry of `spec.ports` of a ServiceImport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportPort {
    /// Empty if unnamed.
    pub name: String,
    /// As written, if it is.
    pub protocol: Option<String>,
    /// As written.
    pub port: i32,
}

/// An imported EndpointSlice as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointSlice {
    /// `metadata`.
    pub key: ObjectKey,
    /// Label `multicluster.kubernetes.io/service-name`: the ServiceImport of the same namespace.
    pub service: Arc<str>,
    /// Label `multicluster.kubernetes.io/source-cluster`; empty if there is none.
    pub source_cluster: Arc<str>,
    /// `addressType`.
    pub address_type: String,
    /// `endpoints`.
    pub endpoints: Box<[Endpoint]>,
    /// `ports`.
    pub ports: Vec<SlicePort>,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`.
    pub trigger: Trigger,
}

/// When that happened which made a controller write an object, if it says so.
///
/// It is not part of what the object says: an object that comes again with nothing but another
/// trigger is unchanged. So any two are equal.
#[derive(Clone, Copy, Eq, Debug, Default)]
pub struct Trigger(pub Option<SystemTime>);

impl PartialEq for Trigger {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl EndpointSlice {
    /// The import that this slice belongs to.
    pub fn import(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.key.namespace), name: Arc::clone(&self.service) }
    }
}

/// An entry of `endpoints` of an EndpointSlice. There may be millions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    /// The first of `addresses`, which alone is used, as by kube-proxy.
    pub address: EndpointAddress,
    /// `conditions.ready`.
    pub ready: Option<bool>,
    /// `conditions.serving`.
    pub serving: Option<bool>,
    /// `conditions.terminating`.
    pub terminating: Option<bool>,
    /// `nodeName`, in its own cluster.
    pub node_name: Option<Arc<str>>,
    /// `hints`; absent if they name nothing.
    pub hints: Option<Arc<Hints>>,
}

/// An address as its author wrote it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum EndpointAddress {
    /// There is none.
    #[default]
    Absent,
    /// Of IPv4 or IPv6.
    Ip(IpAddr),
    /// Something else.
    Other(Box<str>),
}

impl From<&str> for EndpointAddress {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Other(text.into()), Self::Ip)
    }
}

/// Where the clients of an endpoint are to be.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hints {
    /// `forNodes[].name`.
    pub nodes: Vec<String>,
    /// `forZones[].name`.
    pub zones: Vec<String>,
}

impl Endpoint {
    /// The nodes that it is hinted for.
    pub fn for_nodes(&self) -> &[String] {
        self.hints.as_ref().map_or(&[], |hints| &hints.nodes)
    }

    /// The zones that it is hinted for.
    pub fn for_zones(&self) -> &[String] {
        self.hints.as_ref().map_or(&[], |hints| &hints.zones)
    }
}

/// An entry of `ports` of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    /// Empty if unnamed.
    pub name: String,
    /// As written, if it is.
    pub protocol: Option<String>,
    /// As written, if it is.
    pub port: Option<i32>,
}

/// An object of either kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// A ServiceImport.
    Import(ServiceImport),
    /// An imported EndpointSlice.
    Slice(EndpointSlice),
}

impl Object {
    /// Which object this is.
    pub fn reference(&self) -> ObjectRef {
        match self {
            Self::Import(import) => {
                ObjectRef { kind: Kind::ServiceImport, key: import.key.clone() }
            }
            Self::Slice(slice) => ObjectRef { kind: Kind::EndpointSlice, key: slice.key.clone() },
        }
    }
}
