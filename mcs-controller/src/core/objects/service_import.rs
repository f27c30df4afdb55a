//! ServiceImports of this cluster (KEP-1645).

use jiff::Timestamp as Time;
use mcs_kube::{
    Decoder, ObjectKey, SELECTOR_RESULTS, Tiers,
    objects::{self, ObjectMeta, ServiceImport},
    record_of,
};
use serde_json::{Value, json};

use super::{
    MCS_GROUP, conditions, map,
    service::{internal_traffic_policy, ip_families, ports, session_affinity},
};
use crate::core::clusterset::{
    ActualImport, Condition, EndpointSliceObjects, Import, ImportStatus, Owner, ServiceName,
    ServiceSpec, derived_name, well_known,
};

/// A ServiceImport.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportObject {
    /// The import for the rules, with all labels and annotations except the controller's own.
    pub actual: ActualImport,
    /// `status.conditions`, with their times.
    pub conditions: Vec<objects::Condition>,
    /// `metadata.uid`.
    pub uid: String,
}

/// Decodes ServiceImports.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportDecoder;

impl Decoder for ImportDecoder {
    type Object = ServiceImport;
    type Value = ImportObject;

    fn convert(key: &ObjectKey, import: ServiceImport) -> Result<ImportObject, String> {
        let ServiceImport { metadata: ObjectMeta { uid, labels, annotations, .. }, spec, status } =
            import;
        let name =
            ServiceName::new(&key.namespace, &key.name).map_err(|error| error.to_string())?;
        let is_record = record_of(&key.name, &labels, &annotations).is_some();
        let mut labels = map(labels);
        let manager = labels.remove(well_known::MANAGED_BY);
        let owner = match manager.as_deref() {
            Some(well_known::CONTROLLER) => Owner::Us,
            _ => Owner::Other,
        };
        let mut annotations = map(annotations);
        let derived = annotations.remove(well_known::DERIVED_SERVICE);
        let has_derived_service = derived.is_some_and(|derived| *derived == *derived_name(&name));
        let tiers = annotations.remove(SELECTOR_RESULTS);
        let tiers = tiers.and_then(|text| Tiers::parse(&text).ok());
        let ips = spec.ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        let spec = ServiceSpec {
            service_type: spec.service_type,
            ports: ports(spec.ports),
            ip_families: ip_families(&spec.ip_families),
            session_affinity: session_affinity(
                spec.session_affinity.as_deref(),
                spec.session_affinity_config,
            ),
            internal_traffic_policy: internal_traffic_policy(
                spec.internal_traffic_policy.as_deref(),
            ),
            traffic_distribution: spec.traffic_distribution.map(Into::into),
            labels,
            annotations,
        };
        let import = Import { name, ips, spec, has_derived_service, tiers };
        let status = status.unwrap_or_default();
        let conditions = status.conditions;
        let clusters = status.clusters.iter().filter_map(|one| one.cluster.parse().ok());
        let status = ImportStatus {
            clusters: clusters.collect(),
            endpoint_slice_objects: status
                .endpoint_slice_objects
                .filter(|objects| objects == EndpointSliceObjects::Present.name())
                .map(|_| EndpointSliceObjects::Present),
            conditions: self::conditions::decode(&conditions),
            tiers: status.cluster_selector_results.and_then(|value| Tiers::read(value).ok()),
        };
        let actual = ActualImport { owner, import, status, is_record };
        Ok(ImportObject { actual, conditions, uid })
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
    former: &[objects::Condition],
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
    former: &[objects::Condition],
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
