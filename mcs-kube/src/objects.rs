//! The objects of Kubernetes that the programs read: one type for each kind, with the fields that they use, from JSON as from
//! a protobuf message.
//!
//! The tags are from `generated.proto` in k8s.io/api (core/v1, coordination/v1, discovery/v1, networking/v1) and
//! k8s.io/apimachinery (pkg/apis/meta/v1).
#![expect(missing_docs, reason = "types and fields have the names of the API")]
#![expect(clippy::doc_markdown, reason = "`kubectl explain` prints comments as they are")]
#![cfg_attr(
    doc,
    expect(rustdoc::invalid_html_tags, reason = "`kubectl explain` prints comments as they are")
)]
#![expect(clippy::duplicated_attributes, reason = "columns of `kubectl get` have equal types")]

mod built_in;
mod cluster_peer;
mod custom;
mod endpoint_slice;
mod export_rule;
mod exported_service;
mod metadata;
mod patterns;
mod service;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use prost::Message;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

pub use self::{
    built_in::{
        Bare, BuiltIn, Lease, LeaseSpec, Node, NodeAddress, NodeSpec, NodeStatus, ServiceCidr,
        ServiceCidrSpec, Unread,
    },
    cluster_peer::{
        ClusterPeer, ClusterPeerSpec, ClusterPeerStatus, NamespaceRules, PeerLimits,
        SecretReference, WhenStale,
    },
    custom::{
        ClusterProperty, ClusterPropertySpec, ClusterStatus, Custom, ServiceExport,
        ServiceExportSpec, ServiceExportStatus, ServiceImport, ServiceImportSpec,
        ServiceImportStatus,
    },
    endpoint_slice::{
        Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, Named,
    },
    export_rule::{ExportRule, ExportRuleSpec},
    exported_service::{ExportedService, ExportedServiceSpec},
    metadata::{Condition, ObjectMeta, OwnerReference, Time},
    service::{
        ClientIpConfig, Service, ServicePort, ServiceSpec, ServiceType, SessionAffinityConfig,
    },
};
use crate::{
    ObjectKey,
    envelope::{Identified, nullable},
};

/// Decodes the protobuf message of an object. An error: it is no such message.
pub type ReadMessage<O> = fn(&[u8]) -> Result<O, String>;

/// An object as an API server sends it.
pub trait Object: DeserializeOwned {
    /// Reads a protobuf message, which is cheaper to send and to read. `None`: a custom type, which has no messages.
    const MESSAGE: Option<ReadMessage<Self>> = None;

    /// Its key, and `metadata.resourceVersion`.
    fn identity(&self) -> (ObjectKey, Option<String>);
}

/// An object of any form.
#[derive(Debug, Deserialize)]
pub struct Any(pub Value);

impl Object for Any {
    fn identity(&self) -> (ObjectKey, Option<String>) {
        let identified = Identified::deserialize(&self.0);
        identified.map_or_else(|_| (ObjectKey::new("", ""), None), |one| one.metadata.split())
    }
}

/// A type of kube or of its derive.
impl<K: kube::Resource<DynamicType = ()> + DeserializeOwned> Object for K {
    fn identity(&self) -> (ObjectKey, Option<String>) {
        let metadata = self.meta();
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let key = ObjectKey { namespace: text(&metadata.namespace), name: text(&metadata.name) };
        (key, metadata.resource_version.clone())
    }
}

/// The definitions of the project's own types. `cargo xtask deploy` writes them into the chart.
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [ClusterPeer::crd(), ExportedService::crd(), ExportRule::crd()]
}

/// Reads an object or a part of one. The error names the field: only errors need its path, so they decode once more.
pub fn read<'a, T: Deserialize<'a>>(object: &'a Value) -> Result<T, String> {
    T::deserialize(object).or_else(|_| {
        serde_path_to_error::deserialize(object)
            .map_err(|error: serde_path_to_error::Error<serde_json::Error>| error.to_string())
    })
}

fn decode<M: Message + Default>(message: &[u8]) -> Result<M, String> {
    M::decode(message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
