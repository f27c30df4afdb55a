//! The properties of a service, in an export and in the import.

use std::{collections::BTreeMap, sync::Arc};

use super::{InternalTrafficPolicy, IpFamily, ServicePort, ServiceType, SessionAffinity};

const PREFER_SAME_ZONE: &str = "PreferSameZone";

/// The properties that exports and imports have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceSpec {
    /// `spec.type` of the ServiceImport.
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
    /// `spec.exportedLabels` of the ServiceExport; labels of the ServiceImport.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.exportedAnnotations` of the ServiceExport; annotations of the ServiceImport.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
}

impl ServiceSpec {
    /// `spec.trafficDistribution`, with `PreferClose` by its present name `PreferSameZone`.
    pub(super) fn distribution(&self) -> Option<&str> {
        match self.traffic_distribution.as_deref() {
            Some("PreferClose") => Some(PREFER_SAME_ZONE),
            other => other,
        }
    }

    /// Whether clients prefer the endpoints of their zone, and nothing nearer. `PreferSameNode` has no hints. Hints for
    /// nodes count only if every endpoint has one (kube-proxy, `topologyModeFromHints`), and endpoints of other clusters
    /// run on no node of this cluster. Hints for zones alone would hide that an endpoint is on the client's node.
    pub(super) fn prefers_same_zone(&self) -> bool {
        self.distribution() == Some(PREFER_SAME_ZONE)
    }
}
