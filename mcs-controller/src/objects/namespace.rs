//! Namespaces: only whether they exist matters.

use mcs_kube::{Decoder, ObjectKey};
use serde_json::Value;

/// Decodes a Namespace to whether it stays.
#[derive(Clone, PartialEq, Debug)]
pub struct NamespaceDecoder;

impl Decoder for NamespaceDecoder {
    type Value = bool;

    fn decode(_: ObjectKey, object: &Value) -> Result<bool, String> {
        Ok(object["metadata"]["deletionTimestamp"].is_null())
    }
}
