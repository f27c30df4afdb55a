//! `ExportRule`: it exports every Service of its namespace that it selects.
//!
//! The comments on fields are the descriptions that `kubectl explain` prints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "clusterset.mcs-agent.io",
    version = "v1alpha1",
    kind = "ExportRule",
    namespaced,
    category = "mcs",
    doc = "Which Services of a namespace are exported. A developer writes it.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ExportRuleSpec {
    /// The labels of the Services. The controller creates a ServiceExport for each Service of the namespace that has them.
    /// Absent or empty means every Service.
    #[serde(default)]
    #[schemars(schema_with = "selector")]
    pub service_selector: LabelSelector,
    /// spec.exportedAnnotations of these ServiceExports. They are annotations of the ServiceImports. The rule whose name sorts
    /// first decides, and the ServiceExport itself before it.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    pub exported_annotations: BTreeMap<String, String>,
}

/// A rule whose expressions no selector can have would select nothing, and say nothing.
fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {"type": "array", "maxItems": 1000, "items": {
                "type": "object",
                "required": ["key", "operator"],
                "x-kubernetes-validations": [{
                    "rule": "(self.operator == 'In' || self.operator == 'NotIn') == \
                             (has(self.values) && self.values.size() > 0)",
                    "message": "In and NotIn need values, Exists and DoesNotExist have none",
                }],
                "properties": {
                    "key": {"type": "string", "minLength": 1},
                    "operator": {
                        "type": "string",
                        "maxLength": 12,
                        "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                    },
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            }},
        },
    })
}
