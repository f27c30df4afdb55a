//! ExportRules as the controller uses them.

use kube::core::Selector;
use mcs_kube::{
    Decoder, ObjectKey,
    objects::{Custom, ExportRuleSpec},
};

use crate::core::objects::{Map, map};

/// An ExportRule.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ExportRule {
    /// The Services by their labels.
    pub(super) selector: Selector,
    /// `spec.exportedAnnotations`.
    pub(super) annotations: Map,
}

/// Decodes ExportRules.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ExportRuleDecoder;

impl Decoder for ExportRuleDecoder {
    type Object = Custom<Option<ExportRuleSpec>>;
    type Value = ExportRule;

    fn convert(_: &ObjectKey, rule: Self::Object) -> Result<ExportRule, String> {
        let spec = rule.spec.unwrap_or_default();
        let selector = spec.service_selector.try_into();
        Ok(ExportRule {
            selector: selector.map_err(|error| format!("spec.serviceSelector: {error}"))?,
            annotations: map(spec.exported_annotations),
        })
    }
}
