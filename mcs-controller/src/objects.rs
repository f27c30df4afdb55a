//! The Kubernetes objects that the controller reads and writes, and their conversion from and to the types of the rules.

mod cluster_peer;
mod conditions;
mod export_rule;
mod exported_service;
mod namespace;
mod node;
mod publisher_lease;
mod range;
mod secret;
mod service;
mod service_export;
mod service_import;
mod slice;

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

pub use self::{
    cluster_peer::{
        BrokenPeer, ClusterPeerSpec, ClusterPeerStatus, PEER_CONDITIONS, PeerCondition,
        PeerDecoder, PeerObject, PeerVersion, SecretReference,
    },
    export_rule::{ExportRuleDecoder, ExportRuleSpec},
    exported_service::{
        Exported, ExportedServiceDecoder, ExportedServiceSpec, exported_name, exported_service,
    },
    namespace::{NamespaceDecoder, made_namespace},
    node::{NodeDecoder, NodeObject},
    publisher_lease::{PublisherLease, PublisherLeaseDecoder, publisher_lease},
    range::RangeDecoder,
    secret::{SecretDecoder, SecretObject},
    service::{ServiceDecoder, ServiceObject, derived_service},
    service_export::{ExportDecoder, ExportObject, export_status, made_export},
    service_import::{ImportDecoder, ImportObject, import, import_status},
    slice::{
        ImportedObject, ImportedSliceDecoder, LocalSlice, LocalSliceDecoder, MailboxSlice,
        MailboxSliceDecoder, imported_slice, mailbox_slice, mailbox_slice_name,
    },
};

/// The API group of KEP-1645 and its versions, the preferred one first. They have one schema.
pub const MCS_GROUP: &str = "multicluster.x-k8s.io";
/// See [`MCS_GROUP`].
pub const MCS_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// The version of the controller's own resources.
pub const OWN_VERSION: &str = "v1alpha1";

/// Who applies the objects.
pub const FIELD_MANAGER: &str = crate::clusterset::well_known::CONTROLLER;

type Map = BTreeMap<Arc<str>, Arc<str>>;

fn map(strings: Option<BTreeMap<String, String>>) -> Map {
    let strings = strings.unwrap_or_default();
    strings.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// Decodes twice if it fails: only errors need the path of the field.
fn typed<'a, T: Deserialize<'a>>(object: &'a Value) -> Result<T, String> {
    T::deserialize(object).or_else(|_| {
        serde_path_to_error::deserialize(object)
            .map_err(|error: serde_path_to_error::Error<serde_json::Error>| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::clusterset::NamespaceRules;

    /// The schema of a resource, as it is shipped.
    fn schema(text: &str) -> Value {
        let definition: Value = serde_saphyr::from_str(text.trim_start_matches("---\n")).unwrap();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    /// The paths of fields that a schema lacks: the API server would drop them.
    fn unknown(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) if schema["additionalProperties"].is_null() => {
                for (name, value) in fields {
                    let path = format!("{path}.{name}");
                    match schema["properties"].get(name) {
                        Some(schema) => unknown(value, schema, &path, found),
                        None => found.push(path),
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    unknown(item, &schema["items"], path, found);
                }
            }
            _ => {}
        }
    }

    fn assert_known(value: &Value, schema: &Value) {
        let mut found = Vec::new();
        unknown(value, schema, "", &mut found);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn the_definition_of_a_peer_has_every_field() {
        let schema =
            schema(include_str!("../../deploy/helm/mcs-controller/crds/clusterpeers.yaml"));
        let text = || "x".to_owned();
        let secret = SecretReference { namespace: Some(text()), name: text(), key: text() };
        let spec = json!({
            "clusterId": "east", "kubeconfigSecretRef": secret, "mailbox": "m",
            "namespaces": NamespaceRules { allow: vec![text()], deny: vec![text()] },
            "podCIDRs": ["10.0.0.0/8"], "staleAfter": "40s",
        });
        let decoded: ClusterPeerSpec = serde_json::from_value(spec).unwrap();
        let condition = PeerCondition {
            condition_type: text(),
            status: text(),
            reason: text(),
            message: text(),
            last_transition_time: text(),
            observed_generation: Some(1),
        };
        let status = ClusterPeerStatus {
            conditions: vec![condition],
            services: Some(1),
            endpoints: Some(1),
            refused_endpoints: Some(1),
            token_expires: Some(text()),
            last_contact: Some(text()),
        };
        assert_known(&json!({"spec": decoded, "status": status}), &schema);
    }

    #[test]
    fn the_definition_of_an_export_rule_has_every_field() {
        let schema = schema(include_str!("../../deploy/helm/mcs-controller/crds/exportrules.yaml"));
        let expression = json!({"key": "app", "operator": "In", "values": ["web"]});
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [expression]});
        let spec = json!({"serviceSelector": selector});
        let decoded: ExportRuleSpec = serde_json::from_value(spec).unwrap();
        assert_known(&json!({"spec": decoded}), &schema);
    }

    #[test]
    fn the_definition_of_an_exported_service_has_every_field() {
        let schema =
            schema(include_str!("../../deploy/helm/mcs-controller/crds/exportedservices.yaml"));
        let spec: ExportedServiceSpec = serde_json::from_value(json!({
            "clusterId": "east", "namespace": "shop", "name": "web", "type": "ClusterSetIP",
            "exportedAt": "2026-01-02T03:04:05Z",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "appProtocol": "h2c"}],
            "ipFamilies": ["IPv4"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
            "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose",
            "labels": {"a": "b"}, "annotations": {"a": "b"}, "ips": ["241.0.0.1"],
            "audience": ["west"], "slices": ["web-x"],
        }))
        .unwrap();
        assert_known(&json!({"spec": spec}), &schema);
    }
}
