//! Compares the types of the controller's resources with the shipped definitions: both have the same fields.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    ClusterPeerSpec, ClusterPeerStatus, ExportRuleSpec, ExportedServiceSpec, PeerCondition,
    SecretReference,
    cluster_peer::{NamespacePatterns, PeerLimits, WhenStale},
    exported_service::{ClientIpConfig, ExportedPort, SessionAffinityConfig},
};

const PEERS: &str = include_str!("../../../deploy/helm/mcs-controller/crds/clusterpeers.yaml");
const RULES: &str = include_str!("../../../deploy/helm/mcs-controller/crds/exportrules.yaml");
const EXPORTED: &str =
    include_str!("../../../deploy/helm/mcs-controller/crds/exportedservices.yaml");

/// The schema of a part of a resource, as it is shipped.
fn schema(definition: &str, part: &str) -> Value {
    let definition: Value = serde_saphyr::from_str(definition.trim_start_matches("---\n")).unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let stored = versions.iter().find(|version| version["storage"] == true).unwrap();
    stored["schema"]["openAPIV3Schema"]["properties"][part].clone()
}

/// What a value with every field and its schema do not have in common.
fn differences(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    let kind = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
    };
    if schema["type"] != kind {
        found.push(format!("{path} is {kind}, and {} in the definition", schema["type"]));
    }
    match value {
        Value::Object(fields) if schema["additionalProperties"].is_null() => {
            let known = schema["properties"].as_object().cloned().unwrap_or_default();
            for name in known.keys().filter(|name| !fields.contains_key(*name)) {
                found.push(format!("{path}.{name} is in the definition alone"));
            }
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match known.get(name) {
                    Some(schema) => differences(value, schema, &path, found),
                    None => found.push(format!("{path} is in the type alone")),
                }
            }
        }
        Value::Array(items) => {
            assert!(!items.is_empty(), "{path} shows no item");
            for item in items {
                differences(item, &schema["items"], path, found);
            }
        }
        _ => {}
    }
}

/// The value without each field in turn that the API server takes without it, as a JSON pointer and what is left.
fn lacking(value: &Value, schema: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    match value {
        Value::Object(fields) if schema["additionalProperties"].is_null() => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            for (name, field) in fields {
                let of_field = &schema["properties"][name];
                if !required.contains(&json!(name)) && of_field["default"].is_null() {
                    let mut without = fields.clone();
                    without.remove(name);
                    all.push((format!("/{name}"), Value::Object(without)));
                }
                for (path, less) in lacking(field, of_field) {
                    let mut without = fields.clone();
                    without.insert(name.clone(), less);
                    all.push((format!("/{name}{path}"), Value::Object(without)));
                }
            }
        }
        Value::Array(items) => {
            let first = items.first().map(|item| lacking(item, &schema["items"]));
            let less = first.unwrap_or_default().into_iter();
            all.extend(less.map(|(path, item)| (format!("/0{path}"), json!([item]))));
        }
        _ => {}
    }
    all
}

/// A value of the type with every field agrees with the schema, and what the API server takes can be read.
fn assert_agrees<T: Serialize + DeserializeOwned>(full: &T, schema: &Value) {
    let value = serde_json::to_value(full).unwrap();
    let mut found = Vec::new();
    differences(&value, schema, "", &mut found);
    for (path, less) in lacking(&value, schema) {
        if let Err(error) = serde_json::from_value::<T>(less) {
            found.push(format!("{path} is not required, and cannot be read without it: {error}"));
        }
    }
    assert_eq!(found, [""; 0]);
}

fn text() -> String {
    "x".to_owned()
}

fn texts() -> BTreeMap<String, String> {
    [(text(), text())].into()
}

#[test]
fn cluster_peers_have_the_fields_of_their_definition() {
    let spec = ClusterPeerSpec {
        cluster_id: text(),
        cluster_uid: Some(text()),
        kubeconfig_secret_ref: SecretReference { name: text(), key: text() },
        mailbox: text(),
        namespaces: NamespacePatterns { allow: vec![text()], deny: vec![text()] },
        pod_cidrs: vec![text()],
        stale_after: text(),
        when_stale: WhenStale::Withdraw,
        limits: Some(PeerLimits { services: Some(1), endpoints: Some(1), bytes: Some(1) }),
        weight: Some(1),
        drain: Some(true),
        drain_deadline: Some(jiff::Timestamp::UNIX_EPOCH),
    };
    assert_agrees(&spec, &schema(PEERS, "spec"));
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
    assert_agrees(&status, &schema(PEERS, "status"));
}

#[test]
fn export_rules_have_the_fields_of_their_definition() {
    let expression = LabelSelectorRequirement {
        key: text(),
        operator: "In".to_owned(),
        values: Some(vec![text()]),
    };
    let service_selector =
        LabelSelector { match_labels: Some(texts()), match_expressions: Some(vec![expression]) };
    let rule = ExportRuleSpec { service_selector, exported_annotations: texts() };
    assert_agrees(&rule, &schema(RULES, "spec"));
}

#[test]
fn exported_services_have_the_fields_of_their_definition() {
    let port = ExportedPort {
        name: text(),
        protocol: "TCP".to_owned(),
        port: 80,
        app_protocol: Some(text()),
    };
    let client_ip = ClientIpConfig { timeout_seconds: Some(1) };
    let spec = ExportedServiceSpec {
        cluster_id: text(),
        namespace: text(),
        name: text(),
        exported_at: text(),
        service_type: text(),
        ports: vec![port],
        ip_families: vec![text()],
        session_affinity: Some(text()),
        session_affinity_config: Some(SessionAffinityConfig { client_ip }),
        internal_traffic_policy: Some(text()),
        traffic_distribution: Some(text()),
        labels: texts(),
        annotations: texts(),
        ips: vec![text()],
        audience: Some(vec![text()]),
        slices: vec![text()],
    };
    assert_agrees(&spec, &schema(EXPORTED, "spec"));
}

#[test]
fn a_difference_is_found() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "integer"},
    }});
    let mut found = Vec::new();
    differences(&json!({"a": 1, "c": "x"}), &schema, "", &mut found);
    let expected = [
        ".b is in the definition alone",
        ".a is integer, and \"string\" in the definition",
        ".c is in the type alone",
    ];
    assert_eq!(found, expected);
    assert_eq!(lacking(&json!({"a": "x"}), &schema), [("/a".to_owned(), json!({}))]);
}
