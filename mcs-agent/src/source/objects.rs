//! Decodes ServiceImports and EndpointSlices into domain types, the same for every source.

mod endpoint_slice;
mod service_import;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use service_import::ServiceImport;

use crate::model::{Kind, Object, ObjectKey};

/// On an imported EndpointSlice: the ServiceImport of the same namespace that it belongs to. On a
/// ServiceImport with another name: the service of which it is a record.
pub(super) const SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const SOURCE_CLUSTER_LABEL: &str = "multicluster.kubernetes.io/source-cluster";
/// On Submariner's records: the namespace of the service, as label or annotation.
const SOURCE_NAMESPACE_KEY: &str = "lighthouse.submariner.io/sourceNamespace";
/// On a ServiceImport: whether endpoints of this cluster or of the others are preferred (Cilium).
const CILIUM_AFFINITY_ANNOTATION: &str = "service.cilium.io/affinity";
const DERIVED_SERVICE_ANNOTATION: &str = "multicluster.kubernetes.io/derived-service";

/// The error of an object that does not decode, with the path of the field.
pub(super) type DecodeError = serde_path_to_error::Error<serde_json::Error>;

/// The kind of this name, if the agent reads it. The two versions of ServiceImport have one schema
/// (KEP-1645).
pub(super) fn kind(api_version: &str, kind: &str) -> Option<Kind> {
    match (api_version, kind) {
        ("multicluster.x-k8s.io/v1beta1" | "multicluster.x-k8s.io/v1alpha1", "ServiceImport") => {
            Some(Kind::ServiceImport)
        }
        ("discovery.k8s.io/v1", "EndpointSlice") => Some(Kind::EndpointSlice),
        _ => None,
    }
}

/// Decodes an object. Returns `None` for an EndpointSlice that is not imported.
pub(super) fn decode(
    kind: Kind,
    key: ObjectKey,
    object: &serde_json::Value,
) -> Result<Option<Object>, DecodeError> {
    Ok(match kind {
        Kind::ServiceImport => {
            let import: ServiceImport = typed(object)?;
            Some(Object::Import(service_import::convert(import, key)))
        }
        Kind::EndpointSlice => {
            let slice: EndpointSlice = typed(object)?;
            endpoint_slice::convert(slice, key).map(Object::Slice)
        }
    })
}

/// Decodes twice if it fails: tracking the field's path doubles the time, and only errors need it.
fn typed<T: DeserializeOwned>(object: &serde_json::Value) -> Result<T, DecodeError> {
    T::deserialize(object).or_else(|_| serde_path_to_error::deserialize(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_recognised_by_group_and_version() {
        for (api_version, name, expected) in [
            ("multicluster.x-k8s.io/v1beta1", "ServiceImport", Some(Kind::ServiceImport)),
            ("multicluster.x-k8s.io/v1alpha1", "ServiceImport", Some(Kind::ServiceImport)),
            ("multicluster.x-k8s.io/v1", "ServiceImport", None),
            ("multicluster.k8s.io/v1alpha1", "ServiceImport", None),
            ("multicluster.x-k8s.io/v1beta1", "ServiceExport", None),
            ("discovery.k8s.io/v1", "EndpointSlice", Some(Kind::EndpointSlice)),
            ("discovery.k8s.io/v1beta1", "EndpointSlice", None),
            ("v1", "EndpointSlice", None),
        ] {
            assert_eq!(kind(api_version, name), expected, "{api_version}/{name}");
        }
    }
}
