//! Decodes ServiceImports, EndpointSlices and Services, the same for every source.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use mcs_kube::{NotDecoded, endpoint_slice::ReadSlice, message};
use serde::{Deserialize as _, de::DeserializeOwned};

use super::{
    adopt::{self, Controller, ForeignSlice, ReadObject},
    objects::{
        MCS_GROUP, MCS_VERSIONS, endpoint_slice,
        service_import::{self, ReadImport},
    },
};
use crate::model::{Kind, Object, ObjectKey};

/// The error of an object that does not decode, with the path of the field.
pub(super) type DecodeError = serde_path_to_error::Error<serde_json::Error>;

/// Which objects a source reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadScope {
    /// The API group of ServiceImports.
    pub import_group: String,
    /// The controllers whose objects are adopted.
    pub adopt: BTreeSet<Controller>,
}

impl Default for ReadScope {
    /// The objects of KEP-1645.
    fn default() -> Self {
        Self { import_group: MCS_GROUP.to_owned(), adopt: BTreeSet::new() }
    }
}

impl ReadScope {
    /// The kind of this name, if the agent reads it.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        match (group, version, kind) {
            (group, version, "ServiceImport") => {
                let is_read = group == self.import_group && can_read(group, version)
                    || self.reads_gke_beside() && (group, version) == (adopt::GKE_GROUP, "v1");
                is_read.then_some(Kind::ServiceImport)
            }
            ("discovery.k8s.io", "v1", "EndpointSlice") => Some(Kind::EndpointSlice),
            ("", "v1", "Service") if !self.adopt.is_empty() => Some(Kind::Service),
            _ => None,
        }
    }

    /// Whether GKE's imports are read in addition to those of the group.
    pub(super) fn reads_gke_beside(&self) -> bool {
        self.adopt.contains(&Controller::Gke) && self.import_group != adopt::GKE_GROUP
    }
}

/// Whether the agent knows the schema of ServiceImports in this version. That of another group than the KEP's is the
/// user's choice.
pub(super) fn can_read(group: &str, version: &str) -> bool {
    group != MCS_GROUP || MCS_VERSIONS.contains(&version)
}

/// Decodes an object. Returns `None` for an EndpointSlice of no Service.
pub(super) fn decode(
    kind: Kind,
    key: ObjectKey,
    object: &serde_json::Value,
) -> Result<Option<ReadObject>, DecodeError> {
    Ok(match kind {
        Kind::ServiceImport => Some(service_import::convert(typed(object)?, key)),
        Kind::EndpointSlice => slice(&read_slice(object)?, &key),
        Kind::Service => {
            let service = adopt::Service::convert(typed(object)?, key);
            Some(ReadObject::Service(Box::new(service)))
        }
    })
}

fn slice(slice: &ReadSlice<'_>, key: &ObjectKey) -> Option<ReadObject> {
    let imported = endpoint_slice::convert(slice, key.clone());
    let imported = imported.map(|slice| ReadObject::Standard(Object::Slice(slice)));
    imported.or_else(|| ForeignSlice::convert(slice, key.clone()).map(ReadObject::Slice))
}

/// Decodes an EndpointSlice from its JSON text, if nothing is wrong with it and no text in it has an escaped
/// character: it borrows them.
pub(super) fn decode_slice_text(
    key: &ObjectKey,
    text: &str,
) -> Result<Option<ReadObject>, NotDecoded> {
    Ok(slice(&serde_json::from_str(text).map_err(|_| NotDecoded)?, key))
}

/// Decodes an EndpointSlice from its protobuf message.
pub(super) fn decode_slice_message(
    key: &ObjectKey,
    message: &[u8],
) -> Result<Option<ReadObject>, String> {
    Ok(slice(&ReadSlice::from(&message::EndpointSlice::read(message)?), key))
}

/// Decodes a ServiceImport from its JSON text, if nothing is wrong with it.
pub(super) fn decode_import_text(
    key: ObjectKey,
    text: &str,
) -> Result<Option<ReadObject>, NotDecoded> {
    let import: ReadImport = serde_json::from_str(text).map_err(|_| NotDecoded)?;
    Ok(Some(service_import::convert(import, key)))
}

/// Reads a slice. The API's own type says what it expects where that fails: the other one expects borrowed texts.
fn read_slice(object: &serde_json::Value) -> Result<ReadSlice<'_>, DecodeError> {
    ReadSlice::deserialize(object).or_else(|_| {
        serde_path_to_error::deserialize::<_, EndpointSlice>(object)?;
        serde_path_to_error::deserialize(object)
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
            assert_eq!(
                ReadScope::default().kind(api_version, name),
                expected,
                "{api_version}/{name}"
            );
        }
    }

    #[test]
    fn other_groups_and_services_are_read_on_request() {
        let scope = |group: &str, adopt: &[Controller]| ReadScope {
            import_group: group.to_owned(),
            adopt: adopt.iter().copied().collect(),
        };
        let karmada = scope(MCS_GROUP, &[Controller::Karmada]);
        let gke = scope(MCS_GROUP, &[Controller::Gke]);
        let other = scope("net.example.io", &[]);
        let import = Some(Kind::ServiceImport);
        for (scope, api_version, name, expected) in [
            (&karmada, "v1", "Service", Some(Kind::Service)),
            (&karmada, "net.gke.io/v1", "ServiceImport", None),
            (&gke, "net.gke.io/v1", "ServiceImport", import),
            (&gke, "net.gke.io/v1alpha1", "ServiceImport", None),
            (&gke, "multicluster.x-k8s.io/v1beta1", "ServiceImport", import),
            (&other, "net.example.io/v1", "ServiceImport", import),
            (&other, "multicluster.x-k8s.io/v1beta1", "ServiceImport", None),
            (&other, "v1", "Service", None),
        ] {
            assert_eq!(scope.kind(api_version, name), expected, "{scope:?} {api_version}/{name}");
        }
    }
}
