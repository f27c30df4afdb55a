//! Service, and what ServiceImports and ExportedServices have of it.

use std::{collections::BTreeMap, fmt};

use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BuiltIn, nullable};

pub type Service = BuiltIn<ServiceSpec>;

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ServicePort>,
    #[prost(btree_map = "string, string", tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub selector: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    #[prost(string, tag = "4")]
    #[serde(rename = "type")]
    pub service_type: String,
    #[prost(string, tag = "7")]
    pub session_affinity: String,
    #[prost(message, optional, tag = "14")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[prost(string, repeated, tag = "18")]
    #[serde(rename = "clusterIPs", deserialize_with = "nullable")]
    pub cluster_ips: Vec<String>,
    #[prost(string, repeated, tag = "19")]
    #[serde(deserialize_with = "nullable")]
    pub ip_families: Vec<String>,
    #[prost(string, optional, tag = "22")]
    pub internal_traffic_policy: Option<String>,
    #[prost(string, optional, tag = "23")]
    pub traffic_distribution: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    #[prost(string, tag = "1")]
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    #[schemars(default = "tcp", extend("enum" = ["TCP", "UDP", "SCTP"]))]
    pub protocol: String,
    #[prost(int32, tag = "3")]
    #[schemars(with = "u16", range(min = 1))]
    pub port: i32,
    #[prost(string, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub app_protocol: Option<String>,
}

fn tcp() -> String {
    "TCP".to_owned()
}

impl ServicePort {
    /// Name and protocol, which slices and imports share.
    #[must_use]
    pub fn key(&self) -> (&str, &str) {
        let protocol = Some(&*self.protocol).filter(|protocol| !protocol.is_empty());
        (&self.name, protocol.unwrap_or("TCP"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
pub struct SessionAffinityConfig {
    #[prost(message, optional, tag = "1")]
    #[serde(rename = "clientIP")]
    #[schemars(required)]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    #[prost(int32, optional, tag = "1")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: Option<i32>,
}

impl SessionAffinityConfig {
    /// How long a client returns to its endpoint.
    #[must_use]
    pub fn timeout_seconds(self) -> Option<i32> {
        self.client_ip?.timeout_seconds
    }
}

/// `spec.type` of a ServiceImport.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub enum ServiceType {
    #[serde(rename = "ClusterSetIP")]
    ClusterSetIp,
    Headless,
}

impl fmt::Display for ServiceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
