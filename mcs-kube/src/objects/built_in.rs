//! The small built-in kinds: Node, Lease, ServiceCIDR, and those of which only the metadata is read.

use std::fmt;

use ipnet::IpNet;
use prost::Message;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Object, ObjectMeta, Time, decode, nullable};
use crate::{ObjectKey, objects::ReadMessage};

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct BuiltIn<Spec: Part, Status: Part = Unread> {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    #[serde(default)]
    pub spec: Spec,
    #[prost(message, required, tag = "3")]
    #[serde(default)]
    pub status: Status,
}

impl<Spec: Part + DeserializeOwned, Status: Part + DeserializeOwned> Object
    for BuiltIn<Spec, Status>
{
    const MESSAGE: Option<ReadMessage<Self>> = Some(decode);

    fn identity(&self) -> (ObjectKey, Option<String>) {
        self.metadata.identity()
    }
}

/// A part of a built-in object.
pub trait Part: Message + Default + fmt::Debug {}

impl<M: Message + Default + fmt::Debug> Part for M {}

/// A part of an object that no program reads.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Unread {}

/// An object of which only the metadata is read.
pub type Bare = BuiltIn<Unread>;
pub type Lease = BuiltIn<LeaseSpec>;
pub type Node = BuiltIn<NodeSpec, NodeStatus>;
pub type ServiceCidr = BuiltIn<ServiceCidrSpec>;

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    pub holder_identity: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub renew_time: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[prost(string, repeated, tag = "7")]
    #[serde(rename = "podCIDRs", deserialize_with = "nullable")]
    pub pod_cidrs: Vec<String>,
}

impl NodeSpec {
    /// The ranges of its pods. The API server has checked them.
    pub fn pod_ranges(&self) -> impl Iterator<Item = IpNet> {
        self.pod_cidrs.iter().filter_map(|range| range.parse().ok())
    }
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[prost(message, repeated, tag = "5")]
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<NodeAddress>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    pub address_type: String,
    #[prost(string, tag = "2")]
    pub address: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceCidrSpec {
    #[prost(string, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub cidrs: Vec<String>,
}
