//! `ExportRule`: it exports every Service of its namespace that it selects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use mcs_kube::{Decoder, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Map, map, typed};

/// `spec` of an ExportRule. `deploy/helm/mcs-controller/crds` has its schema.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportRuleSpec {
    /// The Services by their labels. Absent or empty means all.
    #[serde(default)]
    pub service_selector: LabelSelector,
    /// `spec.exportedAnnotations` of the ServiceExports that the controller makes.
    #[serde(default)]
    pub exported_annotations: BTreeMap<String, String>,
}

/// An ExportRule.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportRule {
    /// The Services by their labels.
    pub selector: Selector,
    /// `spec.exportedAnnotations`.
    pub annotations: Map,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    spec: ExportRuleSpec,
}

/// Decodes ExportRules.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportRuleDecoder;

impl Decoder for ExportRuleDecoder {
    type Value = ExportRule;

    fn decode(_: ObjectKey, object: &Value) -> Result<ExportRule, String> {
        let Fields { spec } = typed(object)?;
        let selector = spec.service_selector.try_into();
        Ok(ExportRule {
            selector: selector.map_err(|error| format!("spec.serviceSelector: {error}"))?,
            annotations: map(Some(spec.exported_annotations)),
        })
    }
}
