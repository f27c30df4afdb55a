//! Secrets with the kubeconfigs of peers.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use mcs_kube::{Decoder, ObjectKey};

/// The texts in a Secret. `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretObject {
    /// The texts by key, without values that are not UTF-8.
    pub texts: BTreeMap<String, Arc<str>>,
    /// `metadata.resourceVersion`.
    pub version: String,
}

impl fmt::Debug for SecretObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretObject")
    }
}

/// Decodes Secrets.
#[derive(Clone, PartialEq, Debug)]
pub struct SecretDecoder;

impl Decoder for SecretDecoder {
    type Object = Secret;
    type Value = SecretObject;

    fn convert(_: &ObjectKey, secret: Secret) -> Result<Self::Value, String> {
        let data = secret.data.unwrap_or_default().into_iter();
        let texts =
            data.filter_map(|(key, bytes)| Some((key, String::from_utf8(bytes.0).ok()?.into())));
        let version = secret.metadata.resource_version.unwrap_or_default();
        Ok(SecretObject { texts: texts.collect(), version })
    }
}
