//! Namespaces: whether they exist, and those that the controller creates.

use mcs_kube::{Decoder, ObjectKey, objects::Bare};
use serde_json::{Value, json};

use crate::core::clusterset::well_known;

/// Decodes a Namespace to whether it is not being deleted.
#[derive(Clone, PartialEq, Debug)]
pub struct NamespaceDecoder;

impl Decoder for NamespaceDecoder {
    type Object = Bare;
    type Value = bool;

    fn convert(_: &ObjectKey, namespace: Bare) -> Result<bool, String> {
        Ok(namespace.metadata.deletion_timestamp.is_none())
    }
}

/// A namespace for services of peers, as the controller creates it.
pub fn made_namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {well_known::MANAGED_BY: well_known::CONTROLLER},
        },
    })
}
