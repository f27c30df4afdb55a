//! ClusterProperties of this cluster (KEP-2149).

use mcs_kube::{Decoder, ObjectKey};
use serde_json::Value;

/// A ClusterProperty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PropertyObject {
    /// `spec.value`.
    pub value: String,
    /// `metadata.uid`.
    pub uid: String,
}

/// Decodes a ClusterProperty. None: it has no value.
#[derive(Clone, PartialEq, Debug)]
pub struct PropertyDecoder;

impl Decoder for PropertyDecoder {
    type Value = Option<PropertyObject>;

    fn decode(key: ObjectKey, property: &Value) -> Result<Self::Value, String> {
        let value = mcs_kube::PropertyDecoder::decode(key, property)?;
        let uid = property["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(value.map(|value| PropertyObject { value, uid }))
    }
}
