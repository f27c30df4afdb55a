//! ServiceImports of this cluster (KEP-1645).

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp as Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use mcs_kube::{Decoder, ObjectKey, SELECTOR_RESULTS, Tiers, record_of};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MCS_GROUP, conditions, map,
    service::{internal_traffic_policy, ip_family, protocol, session_affinity},
    typed,
};
use crate::clusterset::{
    ActualImport, Condition, EndpointSliceObjects, Import, ImportStatus, Owner, ServiceName,
    ServicePort, ServiceSpec, ServiceType, derived_name, well_known,
};

/// A ServiceImport.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportObject {
    /// The import for the rules, with all labels and annotations except the controller's own.
    pub actual: ActualImport,
    /// `status.conditions`, with their times.
    pub conditions: Vec<v1::Condition>,
    /// `metadata.uid`.
    pub uid: String,
}

#[derive(Deserialize)]
struct Fields {
    metadata: v1::ObjectMeta,
    spec: SpecFields,
    #[serde(default)]
    status: StatusFields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecFields {
    #[serde(default)]
    ports: Vec<PortFields>,
    ips: Option<Vec<String>>,
    #[serde(rename = "type")]
    service_type: ServiceType,
    session_affinity: Option<String>,
    session_affinity_config: Option<AffinityFields>,
    ip_families: Option<Vec<String>>,
    internal_traffic_policy: Option<String>,
    traffic_distribution: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortFields {
    name: Option<String>,
    protocol: Option<String>,
    port: u16,
    app_protocol: Option<String>,
}

#[derive(Deserialize)]
struct AffinityFields {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIpFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientIpFields {
    timeout_seconds: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusFields {
    clusters: Option<Vec<ClusterFields>>,
    conditions: Option<Vec<v1::Condition>>,
    endpoint_slice_objects: Option<String>,
    cluster_selector_results: Option<Value>,
}

#[derive(Deserialize)]
struct ClusterFields {
    cluster: String,
}

/// Decodes ServiceImports.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportDecoder;

impl Decoder for ImportDecoder {
    type Value = ImportObject;

    fn decode(key: ObjectKey, object: &Value) -> Result<ImportObject, String> {
        let Fields { metadata, spec, status } = typed(object)?;
        let name =
            ServiceName::new(&key.namespace, &key.name).map_err(|error| error.to_string())?;
        let [labels, annotations] =
            [metadata.labels, metadata.annotations].map(Option::unwrap_or_default);
        let is_record = record_of(&key.name, &labels, &annotations).is_some();
        let mut labels = map(Some(labels));
        let manager = labels.remove(well_known::MANAGED_BY);
        let owner = match manager.as_deref() {
            Some(well_known::CONTROLLER) => Owner::Us,
            _ => Owner::Other,
        };
        let ips = spec.ips.iter().flatten().filter_map(|ip| ip.parse::<IpAddr>().ok()).collect();
        let mut annotations = map(Some(annotations));
        let derived = annotations.remove(well_known::DERIVED_SERVICE);
        let has_derived_service = derived.is_some_and(|derived| *derived == *derived_name(&name));
        let tiers = annotations.remove(SELECTOR_RESULTS);
        let tiers = tiers.and_then(|text| Tiers::parse(&text).ok());
        let spec = ServiceSpec { labels, annotations, ..properties(spec) };
        let import = Import { name, ips, spec, has_derived_service, tiers };
        let conditions = status.conditions.unwrap_or_default();
        let clusters = status.clusters.unwrap_or_default();
        let status = ImportStatus {
            clusters: clusters.into_iter().filter_map(|one| one.cluster.parse().ok()).collect(),
            endpoint_slice_objects: status
                .endpoint_slice_objects
                .filter(|objects| objects == EndpointSliceObjects::Present.name())
                .map(|_| EndpointSliceObjects::Present),
            conditions: self::conditions::decode(&conditions),
            tiers: status.cluster_selector_results.and_then(|value| Tiers::read(value).ok()),
        };
        let uid = metadata.uid.unwrap_or_default();
        let actual = ActualImport { owner, import, status, is_record };
        Ok(ImportObject { actual, conditions, uid })
    }
}

fn properties(spec: SpecFields) -> ServiceSpec {
    let port = |port: PortFields| {
        Some(ServicePort {
            name: port.name.unwrap_or_default().into(),
            protocol: protocol(port.protocol.as_deref())?,
            port: port.port,
            app_protocol: port.app_protocol.map(Into::into),
        })
    };
    let timeout = spec.session_affinity_config.and_then(|config| config.client_ip);
    let families = spec.ip_families.unwrap_or_default();
    ServiceSpec {
        service_type: spec.service_type,
        ports: spec.ports.into_iter().filter_map(port).collect(),
        ip_families: families.iter().filter_map(|family| ip_family(family)).collect(),
        session_affinity: session_affinity(
            spec.session_affinity.as_deref(),
            timeout.and_then(|timeout| timeout.timeout_seconds),
        ),
        internal_traffic_policy: internal_traffic_policy(spec.internal_traffic_policy.as_deref()),
        traffic_distribution: spec.traffic_distribution.map(Into::into),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// A ServiceImport as the controller applies it.
pub fn import(version: &str, import: &Import) -> Value {
    let Import { name, ips, spec, has_derived_service, tiers } = import;
    let mut annotations = spec.annotations.clone();
    if *has_derived_service {
        annotations.insert(well_known::DERIVED_SERVICE.into(), derived_name(name).into());
    }
    if let Some(tiers) = tiers {
        annotations.insert(SELECTOR_RESULTS.into(), tiers.to_value().into());
    }
    let mut labels = spec.labels.clone();
    labels.insert(well_known::MANAGED_BY.into(), well_known::CONTROLLER.into());
    let mut fields = json!({
        "type": spec.service_type,
        "ports": spec.ports,
        "ips": ips,
        "ipFamilies": spec.ip_families,
        "internalTrafficPolicy": spec.internal_traffic_policy,
        "sessionAffinity": spec.session_affinity.name(),
    });
    if let Some(seconds) = spec.session_affinity.timeout_seconds() {
        fields["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    if let Some(distribution) = &spec.traffic_distribution {
        fields["trafficDistribution"] = json!(distribution);
    }
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceImport",
        "metadata": {
            "namespace": name.namespace(), "name": name.name(),
            "labels": labels, "annotations": annotations,
        },
        "spec": fields,
    })
}

/// `status` of a ServiceImport as the controller applies it.
pub fn import_status(
    version: &str,
    name: &ServiceName,
    status: &ImportStatus,
    former: &[v1::Condition],
    now: Time,
) -> Value {
    let clusters: Vec<_> =
        status.clusters.iter().map(|cluster| json!({"cluster": cluster})).collect();
    let mut fields = json!({
        "clusters": clusters,
        "conditions": conditions::encode(&status.conditions, former, now),
    });
    if let Some(objects) = status.endpoint_slice_objects {
        fields["endpointSliceObjects"] = json!(objects.name());
    }
    if let Some(tiers) = &status.tiers {
        fields["clusterSelectorResults"] = json!(tiers);
    }
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceImport",
        "metadata": {"namespace": name.namespace(), "name": name.name()},
        "status": fields,
    })
}

/// `status` of a ServiceImport that another controller writes, with one condition.
pub fn accepted(
    version: &str,
    name: &ServiceName,
    condition: &Condition,
    former: &[v1::Condition],
    now: Time,
) -> Value {
    let conditions = std::slice::from_ref(condition);
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceImport",
        "metadata": {"namespace": name.namespace(), "name": name.name()},
        "status": {"conditions": conditions::encode(conditions, former, now)},
    })
}
