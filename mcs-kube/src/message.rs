//! The protobuf messages of the built-in Kubernetes types, with the fields that the programs read.
//!
//! The tags are from `generated.proto` in k8s.io/api (core/v1, coordination/v1, discovery/v1, networking/v1) and
//! k8s.io/apimachinery (pkg/apis/meta/v1, pkg/runtime). Serialised as JSON, a message has the names and forms of the API.
#![expect(missing_docs, reason = "types and fields have the names of the API")]

pub(crate) mod envelope;

use std::collections::BTreeMap;

use jiff::Timestamp;
use prost::Message;
use serde::{Deserialize, Serialize, Serializer};

use crate::{Decoder, ObjectKey};

/// Decodes a message by way of the equivalent JSON: for objects that change seldom or have few fields.
pub fn as_json<M: Message + Default + Serialize, D: Decoder>(
    key: &ObjectKey,
    message: &[u8],
) -> Result<D::Value, String> {
    let object = serde_json::to_value(decode::<M>(message)?).map_err(|error| error.to_string())?;
    D::decode(key.clone(), &object)
}

fn decode<M: Message + Default>(message: &[u8]) -> Result<M, String> {
    M::decode(message).map_err(|error| error.to_string())
}

/// API servers accept slices of 1,000 endpoints and 20,000 ports.
const MOST_IN_SLICE: usize = 100_000;

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

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "3")]
    pub ports: Vec<EndpointPort>,
    #[prost(string, tag = "4")]
    pub address_type: String,
}

impl EndpointSlice {
    /// Decodes a slice. An empty endpoint takes two bytes of the message and a hundred of memory, so the endpoints of a
    /// long message are counted first.
    pub fn read(message: &[u8]) -> Result<Self, String> {
        if message.len() > 2 * MOST_IN_SLICE {
            let counted::EndpointSlice { endpoints, ports } = decode(message)?;
            let (endpoints, ports) = (endpoints.len(), ports.len());
            if endpoints.max(ports) > MOST_IN_SLICE {
                return Err(format!("it has {endpoints} endpoints and {ports} ports"));
            }
        }
        decode(message)
    }
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    #[prost(string, repeated, tag = "1")]
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

#[derive(Clone, Copy, PartialEq, Eq, Message, Deserialize, Serialize)]
pub struct EndpointConditions {
    #[prost(bool, optional, tag = "1")]
    pub ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub terminating: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointHints {
    #[prost(message, repeated, tag = "1")]
    pub for_zones: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    pub for_nodes: Vec<Named>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
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

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Service {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<ServiceSpec>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    #[prost(message, repeated, tag = "1")]
    pub ports: Vec<ServicePort>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub selector: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    #[serde(rename = "clusterIP", skip_serializing_if = "String::is_empty")]
    pub cluster_ip: String,
    #[prost(string, tag = "4")]
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_affinity: String,
    #[prost(message, optional, tag = "14")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[prost(string, repeated, tag = "18")]
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[prost(string, repeated, tag = "19")]
    pub ip_families: Vec<String>,
    #[prost(string, optional, tag = "22")]
    pub internal_traffic_policy: Option<String>,
    #[prost(string, optional, tag = "23")]
    pub traffic_distribution: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    #[prost(int32, tag = "3")]
    pub port: i32,
    #[prost(string, optional, tag = "6")]
    pub app_protocol: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize)]
pub struct SessionAffinityConfig {
    #[prost(message, optional, tag = "1")]
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    #[prost(int32, optional, tag = "1")]
    pub timeout_seconds: Option<i32>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Node {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<NodeStatus>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct NodeSpec {
    #[prost(string, repeated, tag = "7")]
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct NodeStatus {
    #[prost(message, repeated, tag = "5")]
    pub addresses: Vec<NodeAddress>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct NodeAddress {
    #[prost(string, tag = "1")]
    #[serde(rename = "type")]
    pub type_: String,
    #[prost(string, tag = "2")]
    pub address: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ServiceCidr {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<ServiceCidrSpec>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct ServiceCidrSpec {
    #[prost(string, repeated, tag = "1")]
    pub cidrs: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Lease {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    pub holder_identity: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub renew_time: Option<Time>,
}

/// An object of which only the metadata is read.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Bare {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(int64, tag = "7")]
    pub generation: i64,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<OwnerReference>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
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

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_none = *self == Self::default();
        Timestamp::new(self.seconds, self.nanos).ok().filter(|_| !is_none).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::messages::captured_slice;

    #[test]
    fn what_an_api_server_sends_is_read() {
        let (message, object) = captured_slice(&[]);
        let slice = EndpointSlice::read(&message).unwrap();
        let read = serde_json::to_value(&slice).unwrap();
        assert_eq!(read["endpoints"][0]["hints"], object["endpoints"][0]["hints"]);
        assert_eq!(read["endpoints"][0]["conditions"], object["endpoints"][0]["conditions"]);
        assert_eq!(read["ports"][0], object["ports"][0]);
        for field in ["name", "namespace", "resourceVersion", "labels", "creationTimestamp"] {
            assert_eq!(read["metadata"][field], object["metadata"][field], "{field}");
        }
        assert_eq!(slice.endpoints[2].conditions, Some(EndpointConditions::default()));
        assert_eq!((slice.ports.len(), slice.ports[2].port), (3, None));
    }

    #[test]
    fn a_time_is_written_as_in_json() {
        let time = |seconds, nanos| serde_json::to_value(Time { seconds, nanos }).unwrap();
        assert_eq!(time(1_767_323_045, 678_901_000), json!("2026-01-02T03:04:05.678901Z"));
        assert_eq!(time(0, 0), json!(null));
        assert_eq!(time(i64::MAX, 0), json!(null), "it is no time");
    }
}
