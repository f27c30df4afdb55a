//! Services that have the VIP of an import.

use k8s_openapi::api::core::v1;

use super::karmada;
use crate::model::{ImportPort, Kind, ObjectKey, ServiceImport, ServiceType, Timestamp};

/// What the agent uses of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::source) struct Service {
    pub(super) key: ObjectKey,
    /// The Service as an import, if the agent adopts it. Its addresses are the ClusterIPs.
    pub(super) import: ServiceImport,
    /// The name that Karmada has for the own cluster.
    pub(super) own_cluster: Option<Box<str>>,
}

impl Service {
    /// Converts a Service. It has no addresses if it is headless, or an alias.
    pub(in crate::source) fn convert(service: v1::Service, key: ObjectKey) -> Self {
        let spec = service.spec.unwrap_or_default();
        let annotations = service.metadata.annotations.unwrap_or_default();
        let addresses = match spec.cluster_ips {
            Some(all) if !all.is_empty() => all,
            _ => spec.cluster_ip.into_iter().collect(),
        };
        let ips: Vec<String> =
            addresses.into_iter().filter(|ip| !ip.is_empty() && ip != "None").collect();
        let affinity = spec.session_affinity_config.and_then(|config| config.client_ip);
        Self {
            own_cluster: annotations
                .get(karmada::WORK_NAMESPACE_ANNOTATION)
                .and_then(|namespace| karmada::own_cluster(namespace))
                .map(Into::into),
            import: ServiceImport {
                created: service
                    .metadata
                    .creation_timestamp
                    .map(|time| Timestamp(time.0.as_second())),
                derived_service: Some(key.name.to_string()),
                remedy: super::PUBLISH.into(),
                service_type: if ips.is_empty() {
                    ServiceType::Headless
                } else {
                    ServiceType::ClusterSetIp
                },
                ips,
                ports: spec.ports.unwrap_or_default().into_iter().map(port).collect(),
                session_affinity: spec.session_affinity,
                affinity_timeout_seconds: affinity.and_then(|client_ip| client_ip.timeout_seconds),
                internal_traffic_policy: spec.internal_traffic_policy,
                traffic_distribution: spec.traffic_distribution.map(Into::into),
                ..ServiceImport::new(Kind::Service, key.clone())
            },
            key,
        }
    }
}

fn port(port: v1::ServicePort) -> ImportPort {
    ImportPort { name: port.name.unwrap_or_default(), protocol: port.protocol, port: port.port }
}
