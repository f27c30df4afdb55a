//! ClusterProperties of this cluster (KEP-2149).

use std::mem::take;

use mcs_kube::{Decoder, ObjectKey, objects::ClusterProperty};

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
    type Object = ClusterProperty;
    type Value = Option<PropertyObject>;

    fn convert(_: &ObjectKey, mut property: ClusterProperty) -> Result<Self::Value, String> {
        let uid = take(&mut property.metadata.uid);
        Ok(property.value().map(|value| PropertyObject { value, uid }))
    }
}
