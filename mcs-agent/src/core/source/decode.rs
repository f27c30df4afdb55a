//! Decodes ServiceImports and EndpointSlices as a filter and a directory have them.

use mcs_kube::objects;
use serde_json::Value;

use super::{
    ReadObject,
    objects::{MCS_GROUP, MCS_VERSIONS, endpoint_slice, service_import},
};
use crate::core::model::{Kind, ObjectKey};

/// The kind of this name, if KEP-1645 has it. `import_group` is the API group of ServiceImports.
pub(crate) fn kind(import_group: &str, api_version: &str, kind: &str) -> Option<Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match (group, version, kind) {
        (group, version, "ServiceImport") => {
            let is_read = group == import_group && can_read(group, version);
            is_read.then_some(Kind::ServiceImport)
        }
        ("discovery.k8s.io", "v1", "EndpointSlice") => Some(Kind::EndpointSlice),
        _ => None,
    }
}

/// Whether the agent knows the schema of ServiceImports in this version. That of another group than the KEP's is the
/// user's choice.
fn can_read(group: &str, version: &str) -> bool {
    group != MCS_GROUP || MCS_VERSIONS.contains(&version)
}

/// Decodes an object. Returns `None` for one that is neither an import nor a slice of one.
pub(crate) fn decode(
    kind: Kind,
    key: &ObjectKey,
    object: &Value,
) -> Result<Option<ReadObject>, String> {
    let key = key.clone();
    Ok(match kind {
        Kind::ServiceImport => {
            let import = service_import::convert(objects::read(object)?, key);
            Some(ReadObject::Import(Box::new(import)))
        }
        Kind::EndpointSlice => {
            endpoint_slice::convert(objects::read(object)?, key).map(ReadObject::Slice)
        }
        Kind::Service => None,
    })
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
            ("v1", "Service", None),
        ] {
            assert_eq!(kind(MCS_GROUP, api_version, name), expected, "{api_version}/{name}");
        }
        let import = Some(Kind::ServiceImport);
        assert_eq!(kind("net.example.io", "net.example.io/v1", "ServiceImport"), import);
        assert_eq!(kind("net.example.io", "multicluster.x-k8s.io/v1beta1", "ServiceImport"), None);
    }
}
