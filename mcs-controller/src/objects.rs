//! The Kubernetes objects that the controller reads and writes, and their conversion from and to the types of the rules.

mod cluster_peer;
mod conditions;
#[cfg(test)]
mod definitions;
mod export_rule;
mod exported_service;
mod namespace;
mod node;
mod property;
mod publisher_lease;
mod range;
mod secret;
mod service;
mod service_export;
mod service_import;
mod slice;

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

#[cfg(test)]
pub(crate) use self::publisher_lease::complete_lease;
pub use self::{
    cluster_peer::{
        BrokenPeer, ClusterPeerSpec, ClusterPeerStatus, Limits, PEER_CONDITIONS, PeerCondition,
        PeerDecoder, PeerObject, PeerVersion, SecretReference, WhenStale,
    },
    export_rule::{ExportRule, ExportRuleDecoder, ExportRuleSpec},
    exported_service::{
        Exported, ExportedObject, ExportedServiceDecoder, ExportedServiceSpec, exported_name,
        exported_service, service_of,
    },
    namespace::{NamespaceDecoder, made_namespace},
    node::{NodeDecoder, NodeObject},
    property::{PropertyDecoder, PropertyObject},
    publisher_lease::{Membership, PublisherLease, PublisherLeaseDecoder, SCHEMA, publisher_lease},
    range::RangeDecoder,
    secret::{SecretDecoder, SecretObject},
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
pub const FIELD_MANAGER: &str = crate::clusterset::well_known::CONTROLLER;

type Map = BTreeMap<Arc<str>, Arc<str>>;

fn map(strings: Option<BTreeMap<String, String>>) -> Map {
    let strings = strings.unwrap_or_default();
    strings.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// Decodes again after a failure: only the error needs the path of the field.
fn typed<'a, T: Deserialize<'a>>(object: &'a Value) -> Result<T, String> {
    T::deserialize(object).or_else(|_| {
        serde_path_to_error::deserialize(object)
            .map_err(|error: serde_path_to_error::Error<serde_json::Error>| error.to_string())
    })
}
