//! `ExportRule`: every Service of its namespace that it selects is exported.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use mcs_kube::{Decoder, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::typed;

/// `spec` of an ExportRule. `deploy/helm/mcs-controller/crds` has its schema.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportRuleSpec {
    /// The Services by their labels. Absent or empty means all.
    #[serde(default)]
    pub service_selector: LabelSelector,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    spec: ExportRuleSpec,
}

/// Decodes an ExportRule to what it selects.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportRuleDecoder;

impl Decoder for ExportRuleDecoder {
    type Value = Selector;

    fn decode(_: ObjectKey, object: &Value) -> Result<Selector, String> {
        let Fields { spec } = typed(object)?;
        spec.service_selector.try_into().map_err(|error| format!("spec.serviceSelector: {error}"))
    }
}
