//! ServiceImport of the CRD of sigs.k8s.io/mcs-api. v1alpha1 and v1beta1 have the same schema.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::DERIVED_SERVICE_ANNOTATION;
use crate::model::{self, ImportPort, ObjectKey, ServiceType, Timestamp};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceImport",
    namespaced,
    status = "ServiceImportStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceImportSpec {
    ports: Vec<ServicePort>,
    ips: Option<Vec<String>>,
    #[serde(rename = "type")]
    service_type: ServiceImportType,
    session_affinity: Option<String>,
    session_affinity_config: Option<SessionAffinityConfig>,
    ip_families: Option<Vec<String>>,
    internal_traffic_policy: Option<String>,
    traffic_distribution: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum ServiceImportType {
    #[serde(rename = "ClusterSetIP")]
    ClusterSetIp,
    Headless,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServicePort {
    name: Option<String>,
    protocol: Option<String>,
    app_protocol: Option<String>,
    port: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientIpConfig {
    timeout_seconds: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceImportStatus {
    clusters: Option<Vec<ClusterStatus>>,
    conditions: Option<Vec<Condition>>,
    endpoint_slice_objects: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ClusterStatus {
    cluster: String,
}

/// Converts to the domain type, with the key that the source uses for the object.
pub(super) fn convert(import: ServiceImport, key: ObjectKey) -> model::ServiceImport {
    let ServiceImport { metadata, spec, status } = import;
    model::ServiceImport {
        key,
        created: metadata.creation_timestamp.map(|time| Timestamp(time.0.as_second())),
        derived_service: metadata
            .annotations
            .and_then(|mut annotations| annotations.remove(DERIVED_SERVICE_ANNOTATION)),
        service_type: match spec.service_type {
            ServiceImportType::ClusterSetIp => ServiceType::ClusterSetIp,
            ServiceImportType::Headless => ServiceType::Headless,
        },
        ips: spec.ips.unwrap_or_default(),
        ports: spec.ports.into_iter().map(port).collect(),
        session_affinity: spec.session_affinity,
        affinity_timeout_seconds: spec
            .session_affinity_config
            .and_then(|config| config.client_ip)
            .and_then(|client_ip| client_ip.timeout_seconds),
        internal_traffic_policy: spec.internal_traffic_policy,
        endpoint_slice_objects: status.and_then(|status| status.endpoint_slice_objects),
    }
}

fn port(port: ServicePort) -> ImportPort {
    let ServicePort { name, protocol, port, .. } = port;
    ImportPort { name: name.unwrap_or_default(), protocol, port }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(object: serde_json::Value) -> Result<model::ServiceImport, String> {
        let import: ServiceImport = serde_path_to_error::deserialize(object)
            .map_err(|error: serde_path_to_error::Error<serde_json::Error>| error.to_string())?;
        Ok(convert(import, ObjectKey::new("shop", "web")))
    }

    #[test]
    fn every_field_arrives() {
        let import = decode(json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceImport",
            "metadata": {
                "name": "web",
                "creationTimestamp": "1970-01-01T00:01:00Z",
                "annotations": {"multicluster.kubernetes.io/derived-service": "derived-abc"},
            },
            "spec": {
                "type": "ClusterSetIP",
                "ips": ["10.0.0.1", "fd00::1"],
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [
                    {"name": "http", "protocol": "TCP", "appProtocol": "http", "port": 80},
                    {"port": 53},
                ],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "internalTrafficPolicy": "Local",
                "trafficDistribution": "PreferClose",
            },
            "status": {
                "clusters": [{"cluster": "a"}],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "endpointSliceObjects": "Present",
            },
        }));
        assert_eq!(
            import,
            Ok(model::ServiceImport {
                key: ObjectKey::new("shop", "web"),
                created: Some(Timestamp(60)),
                derived_service: Some("derived-abc".to_owned()),
                service_type: ServiceType::ClusterSetIp,
                ips: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
                ports: vec![
                    ImportPort {
                        name: "http".to_owned(),
                        protocol: Some("TCP".to_owned()),
                        port: 80,
                    },
                    ImportPort { name: String::new(), protocol: None, port: 53 },
                ],
                session_affinity: Some("ClientIP".to_owned()),
                affinity_timeout_seconds: Some(60),
                internal_traffic_policy: Some("Local".to_owned()),
                endpoint_slice_objects: Some("Present".to_owned()),
            })
        );
    }

    #[test]
    fn optional_fields_may_be_absent_or_null() {
        let expected = Ok(model::ServiceImport {
            key: ObjectKey::new("shop", "web"),
            created: None,
            derived_service: None,
            service_type: ServiceType::Headless,
            ips: Vec::new(),
            ports: Vec::new(),
            session_affinity: None,
            affinity_timeout_seconds: None,
            internal_traffic_policy: None,
            endpoint_slice_objects: None,
        });
        let absent = json!({"metadata": {}, "spec": {"type": "Headless", "ports": []}});
        let null = json!({
            "metadata": {"creationTimestamp": null, "annotations": null},
            "spec": {
                "type": "Headless", "ports": [], "ips": null, "ipFamilies": null,
                "sessionAffinity": null, "sessionAffinityConfig": null,
                "internalTrafficPolicy": null, "trafficDistribution": null,
            },
            "status": null,
        });
        assert_eq!(decode(absent), expected);
        assert_eq!(decode(null), expected);
    }

    #[test]
    fn errors_name_the_field() {
        for (spec, expected) in [
            (json!({"type": "ClusterSetIP"}), "spec: missing field `ports`"),
            (json!({"ports": []}), "spec: missing field `type`"),
            (
                json!({"type": "ClusterSetIP", "ports": "http"}),
                "spec.ports: invalid type: string \"http\", expected a sequence",
            ),
            (
                json!({"type": "ClusterSetIP", "ports": [{"port": 80}, {"port": "80"}]}),
                "spec.ports[1].port: invalid type: string \"80\", expected i32",
            ),
            (
                json!({"type": "External", "ports": []}),
                "spec.type: unknown variant `External`, expected `ClusterSetIP` or `Headless`",
            ),
        ] {
            assert_eq!(
                decode(json!({"metadata": {}, "spec": spec})),
                Err(expected.to_owned()),
                "{spec}"
            );
        }
    }
}
