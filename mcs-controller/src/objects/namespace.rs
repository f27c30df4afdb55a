//! Namespaces: whether they exist, and those that the controller creates.

use mcs_kube::{Decoder, ObjectKey, ReadMessage, message};
use serde_json::{Value, json};

use crate::clusterset::well_known;

/// Decodes a Namespace to whether it is not being deleted.
#[derive(Clone, PartialEq, Debug)]
pub struct NamespaceDecoder;

impl Decoder for NamespaceDecoder {
    type Value = bool;

    const MESSAGE: Option<ReadMessage<Self::Value>> = Some(message::as_json::<message::Bare, Self>);

    fn decode(_: ObjectKey, object: &Value) -> Result<bool, String> {
        Ok(object["metadata"]["deletionTimestamp"].is_null())
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
