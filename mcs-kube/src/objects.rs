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
mod patterns;
mod service;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
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
    service::{
        ClientIpConfig, Service, ServicePort, ServiceSpec, ServiceType, SessionAffinityConfig,
    },
};
pub(crate) use crate::envelope::nullable;
use crate::{ObjectKey, envelope::Identified};

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

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    #[prost(int64, tag = "7")]
    pub generation: i64,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// See [`Object::identity`](Object::identity).
    pub(crate) fn identity(&self) -> (ObjectKey, Option<String>) {
        let key = ObjectKey::new(&*self.namespace, &*self.name);
        (key, Some(&self.resource_version).filter(|version| !version.is_empty()).cloned())
    }

    /// A label, unless it is empty.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    #[prost(string, tag = "1")]
    pub kind: String,
}

/// A time. Kubernetes' zero time is an empty message.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Time {
    /// The time, unless it is the zero time or none.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        let is_none = self == Self::default();
        Timestamp::new(self.seconds, self.nanos).ok().filter(|_| !is_none)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.timestamp().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = Timestamp::deserialize(deserializer)?;
        Ok(Self { seconds: time.as_second(), nanos: time.subsec_nanosecond() })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
pub struct Condition {
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub condition_type: String,
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    #[schemars(length(max = 32768))]
    pub message: String,
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
