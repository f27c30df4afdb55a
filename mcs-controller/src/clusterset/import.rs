//! A ServiceImport as this cluster should have it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    ClusterId, Condition, InternalTrafficPolicy, IpFamily, ServiceName, ServicePort, ServiceType,
    SessionAffinity,
};

/// A ServiceImport without its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// `metadata`.
    pub name: ServiceName,
    /// `spec.ips`, one for each entry of `spec.ip_families` and in the same order. A headless import has none.
    pub ips: Vec<IpAddr>,
    /// What the exports agree on.
    pub spec: ImportSpec,
}

/// The properties that the exports agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportSpec {
    /// `spec.type`.
    pub service_type: ServiceType,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.ipFamilies`.
    pub ip_families: Vec<IpFamily>,
    /// `spec.sessionAffinity` and `spec.sessionAffinityConfig`.
    pub session_affinity: SessionAffinity,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<Arc<str>>,
    /// Exported labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Exported annotations.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
}

/// `status` of a ServiceImport. It has no times: a change of an import costs every node of the cluster a full
/// evaluation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportStatus {
    /// `clusters`.
    pub clusters: BTreeSet<ClusterId>,
    /// `endpointSliceObjects`; absent until all slices are written.
    pub endpoint_slice_objects: Option<EndpointSliceObjects>,
    /// `conditions`.
    pub conditions: Vec<Condition>,
}

/// `status.endpointSliceObjects` of a ServiceImport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointSliceObjects {
    /// The cluster holds slices of the service.
    Present,
}

impl EndpointSliceObjects {
    /// The value of the field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "Present",
        }
    }
}
