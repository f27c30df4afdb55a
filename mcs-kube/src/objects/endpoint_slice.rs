//! EndpointSlice of discovery.k8s.io.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::{Object, ObjectMeta, decode, nullable};
use crate::{ObjectKey, objects::ReadMessage};

/// API servers accept slices of 1,000 endpoints and 20,000 ports.
const MOST: usize = 100_000;

mod counted {
    /// The lists of a slice, without memory for their entries. prost uses the name of the type in errors.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct EndpointSlice {
        #[prost(message, repeated, tag = "2")]
        pub(super) endpoints: Vec<()>,
        #[prost(message, repeated, tag = "3")]
        pub(super) ports: Vec<()>,
    }
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[prost(message, repeated, tag = "2")]
    #[serde(default, deserialize_with = "nullable")]
    pub endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "3")]
    #[serde(default, deserialize_with = "nullable")]
    pub ports: Vec<EndpointPort>,
    #[prost(string, tag = "4")]
    #[serde(default)]
    pub address_type: String,
}

impl Object for EndpointSlice {
    /// An empty endpoint takes two bytes of the message and a hundred of memory, so the endpoints of a long message are counted
    /// first.
    const MESSAGE: Option<ReadMessage<Self>> = Some(|message| {
        if message.len() > 2 * MOST {
            let counted::EndpointSlice { endpoints, ports } = decode(message)?;
            let (endpoints, ports) = (endpoints.len(), ports.len());
            if endpoints.max(ports) > MOST {
                return Err(format!("it has {endpoints} endpoints and {ports} ports"));
            }
        }
        decode(message)
    });

    fn identity(&self) -> (ObjectKey, Option<String>) {
        self.metadata.identity()
    }
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    #[prost(string, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub conditions: Option<EndpointConditions>,
    #[prost(string, optional, tag = "3")]
    pub hostname: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub node_name: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub zone: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub hints: Option<EndpointHints>,
}

impl Endpoint {
    /// The first address; kube-proxy ignores the others too.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.addresses.first().map(String::as_str)
    }

    /// Whether it gets new clients. An absent condition means ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.unwrap_or_default().ready != Some(false)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
pub struct EndpointConditions {
    #[prost(bool, optional, tag = "1")]
    pub ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub terminating: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointHints {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub for_zones: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub for_nodes: Vec<Named>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub protocol: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub port: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub app_protocol: Option<String>,
}

impl EndpointPort {
    /// Name and protocol, which slices and imports share.
    #[must_use]
    pub fn key(&self) -> (&str, &str) {
        let protocol = self.protocol.as_deref().unwrap_or("TCP");
        (self.name.as_deref().unwrap_or_default(), protocol)
    }
}
