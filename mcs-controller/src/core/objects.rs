//! The Kubernetes objects that the controller reads and writes, and their conversion from and to the types of the rules.

mod cluster;
mod cluster_peer;
mod conditions;
mod exported_service;
mod publisher_lease;
mod service;
mod service_export;
mod service_import;
mod slice;

use std::{collections::BTreeMap, sync::Arc};

pub use mcs_kube::{
    RangeDecoder,
    objects::{
        ClusterPeerSpec, ClusterPeerStatus, Condition as PeerCondition, ExportedServiceSpec,
        SecretReference, WhenStale,
    },
};

#[cfg(test)]
pub(crate) use self::publisher_lease::complete_lease;
pub use self::{
    cluster::{
        NamespaceDecoder, NodeDecoder, NodeObject, PropertyDecoder, PropertyObject, SecretDecoder,
        SecretObject, made_namespace,
    },
    cluster_peer::{BrokenPeer, Limits, PEER_CONDITIONS, PeerDecoder, PeerObject, PeerVersion},
    exported_service::{
        Exported, ExportedObject, ExportedServiceDecoder, exported_name, exported_service,
        service_of,
    },
    publisher_lease::{Membership, PublisherLease, PublisherLeaseDecoder, SCHEMA, publisher_lease},
    service::{ServiceDecoder, ServiceObject, derived_service},
    service_export::{ExportDecoder, ExportObject, export_status, made_export},
    service_import::{ImportDecoder, ImportObject, accepted, import, import_status},
    slice::{
        ImportedObject, ImportedSliceDecoder, LocalSlice, LocalSliceDecoder, MailboxSlice,
        MailboxSliceDecoder, WrittenSlice, imported_slice, mailbox_slice, mailbox_slice_name,
        restrict,
    },
};

/// The API group of KEP-1645 and its versions, the preferred one first. They have one schema.
pub const MCS_GROUP: &str = "multicluster.x-k8s.io";
/// See [`MCS_GROUP`].
pub const MCS_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// The version of the controller's own resources.
pub const OWN_VERSION: &str = "v1alpha1";

/// Who applies the objects.
pub const FIELD_MANAGER: &str = crate::core::clusterset::well_known::CONTROLLER;

pub(crate) type Map = BTreeMap<Arc<str>, Arc<str>>;

pub(crate) fn map(strings: BTreeMap<String, String>) -> Map {
    strings.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// What a decoder makes of an object.
#[cfg(test)]
pub(crate) fn decoded<D: mcs_kube::Decoder>(
    object: &serde_json::Value,
) -> Result<D::Value, String> {
    serde_json::from_value::<mcs_kube::WatchedObject<D>>(object.clone()).unwrap().decoded
}
