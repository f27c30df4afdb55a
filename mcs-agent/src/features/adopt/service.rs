//! Services that have the VIP of an import.

use mcs_kube::objects::{self, SessionAffinityConfig};

use super::karmada;
use crate::core::{
    model::{Kind, ObjectKey, ServiceImport, ServiceType, Timestamp},
    source::objects::{PUBLISH, port},
};

/// What the agent uses of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Service {
    pub(super) key: ObjectKey,
    /// The Service as an import, if the agent adopts it. Its addresses are the ClusterIPs.
    pub(super) import: ServiceImport,
    /// The name that Karmada has for the own cluster.
    pub(super) own_cluster: Option<Box<str>>,
}

impl Service {
    /// Converts a Service. It has no addresses if it is headless, or an alias.
    pub(super) fn convert(service: objects::Service, key: ObjectKey) -> Self {
        let objects::Service { metadata, spec, .. } = service;
        let addresses =
            if spec.cluster_ips.is_empty() { vec![spec.cluster_ip] } else { spec.cluster_ips };
        let ips: Vec<String> =
            addresses.into_iter().filter(|ip| !ip.is_empty() && ip != "None").collect();
        Self {
            own_cluster: metadata
                .annotation(karmada::WORK_NAMESPACE_ANNOTATION)
                .and_then(karmada::own_cluster)
                .map(Into::into),
            import: ServiceImport {
                created: metadata.creation_timestamp.map(|time| Timestamp(time.seconds)),
                derived_service: Some(key.name.to_string()),
                remedy: PUBLISH.into(),
                service_type: if ips.is_empty() {
                    ServiceType::Headless
                } else {
                    ServiceType::ClusterSetIp
                },
                ips,
                ports: spec.ports.into_iter().map(port).collect(),
                session_affinity: Some(spec.session_affinity).filter(|one| !one.is_empty()),
                affinity_timeout_seconds: spec
                    .session_affinity_config
                    .and_then(SessionAffinityConfig::timeout_seconds),
                internal_traffic_policy: spec.internal_traffic_policy,
                traffic_distribution: spec.traffic_distribution.map(Into::into),
                ..ServiceImport::new(Kind::Service, key.clone())
            },
            key,
        }
    }
}
