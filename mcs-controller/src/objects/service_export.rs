//! ServiceExports of this cluster (KEP-1645).

use std::collections::BTreeMap;

use jiff::Timestamp as Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use mcs_kube::{Decoder, ObjectKey};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{MCS_GROUP, Map, conditions, map, typed};
use crate::clusterset::{Audience, Condition, ServiceName, Timestamp, well_known};

/// A ServiceExport.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportObject {
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// `spec.exportedLabels`.
    pub labels: Map,
    /// `spec.exportedAnnotations`, in which `spec.clusterSelectors` is an annotation too.
    pub annotations: Map,
    /// Whether this controller made it, because an ExportRule selects the Service.
    pub is_made: bool,
    /// `metadata.uid`.
    pub uid: String,
    /// The audience.
    pub audience: Audience,
    /// `status.conditions`, with their times.
    pub conditions: Vec<v1::Condition>,
}

#[derive(Deserialize)]
struct Fields {
    metadata: v1::ObjectMeta,
    #[serde(default)]
    spec: SpecFields,
    #[serde(default)]
    status: StatusFields,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecFields {
    exported_labels: Option<BTreeMap<String, String>>,
    exported_annotations: Option<BTreeMap<String, String>>,
    cluster_selectors: Option<Value>,
}

#[derive(Default, Deserialize)]
struct StatusFields {
    conditions: Option<Vec<v1::Condition>>,
}

/// Decodes ServiceExports.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportDecoder;

impl Decoder for ExportDecoder {
    type Value = ExportObject;

    fn decode(_: ObjectKey, object: &Value) -> Result<ExportObject, String> {
        let Fields { metadata, spec, status } = typed(object)?;
        let created = metadata.creation_timestamp.map_or(0, |time| time.0.as_second());
        let annotations = metadata.annotations.unwrap_or_default();
        let mut exported = map(spec.exported_annotations);
        if let Some(selectors) = spec.cluster_selectors {
            exported.insert(well_known::CLUSTER_SELECTORS.into(), selectors.to_string().into());
        }
        let writer = metadata.labels.unwrap_or_default().remove(well_known::MANAGED_BY);
        Ok(ExportObject {
            created: Timestamp(created),
            is_made: writer.as_deref() == Some(well_known::CONTROLLER),
            uid: metadata.uid.unwrap_or_default(),
            labels: map(spec.exported_labels),
            annotations: exported,
            audience: audience(annotations.get(well_known::AUDIENCE)),
            conditions: status.conditions.unwrap_or_default(),
        })
    }
}

impl ExportObject {
    /// The conditions of the API's types.
    pub fn known_conditions(&self) -> Vec<Condition> {
        conditions::decode(&self.conditions)
    }

    /// Whether it has condition `Valid`.
    pub fn is_judged(&self) -> bool {
        self.conditions.iter().any(|one| one.type_ == "Valid")
    }
}

/// An invalid cluster name in the audience matches no cluster.
fn audience(annotation: Option<&String>) -> Audience {
    let Some(list) = annotation else { return Audience::All };
    Audience::Only(list.split(',').filter_map(|id| id.trim().parse().ok()).collect())
}

/// The ServiceExport of a Service that an ExportRule selects, as the controller creates it.
pub fn made_export(version: &str, name: &ServiceName) -> Value {
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceExport",
        "metadata": {
            "namespace": name.namespace(),
            "name": name.name(),
            "labels": {well_known::MANAGED_BY: well_known::CONTROLLER},
        },
    })
}

/// `status` as the controller applies it.
pub fn export_status(
    version: &str,
    (namespace, name): (&str, &str),
    wanted: &[Condition],
    former: &[v1::Condition],
    now: Time,
) -> Value {
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceExport",
        "metadata": {"namespace": namespace, "name": name},
        "status": {"conditions": conditions::encode(wanted, former, now)},
    })
}
