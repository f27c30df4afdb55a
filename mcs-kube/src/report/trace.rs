//! What the programs decide, as `mcs-agent trace` tells it.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{one_line, program::Verdict};

/// A decision. A line of `trace -o json`: fields are added, never renamed. What is not known is absent.
#[derive(Debug, Serialize, Deserialize)]
pub struct TraceView {
    /// When it was made.
    pub timestamp: Timestamp,
    /// What becomes of the client.
    #[serde(rename = "mcs.verdict")]
    pub verdict: Verdict,
    /// The counter that counts it, as `status` names it.
    #[serde(rename = "mcs.reason")]
    pub reason: Cow<'static, str>,
    /// `socket` or `packet`.
    #[serde(rename = "mcs.path")]
    pub path: Cow<'static, str>,
    /// `NAMESPACE/NAME` of the ServiceImport.
    #[serde(rename = "mcs.import", skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
    /// The backend's source cluster.
    #[serde(rename = "mcs.source_cluster", skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether session affinity remembered the backend; absent in the packet path.
    #[serde(rename = "mcs.affinity", skip_serializing_if = "Option::is_none")]
    pub affinity: Option<bool>,
    /// The VIP.
    #[serde(rename = "destination.address")]
    pub vip: IpAddr,
    /// Its port.
    #[serde(rename = "destination.port")]
    pub port: u16,
    /// `tcp` or `udp`.
    #[serde(rename = "network.transport", skip_serializing_if = "Option::is_none")]
    pub transport: Option<Cow<'static, str>>,
    /// `ipv4` or `ipv6`.
    #[serde(rename = "network.type")]
    pub family: Cow<'static, str>,
    /// The backend.
    #[serde(rename = "network.peer.address", skip_serializing_if = "Option::is_none")]
    pub backend: Option<IpAddr>,
    /// Its port.
    #[serde(rename = "network.peer.port", skip_serializing_if = "Option::is_none")]
    pub backend_port: Option<u16>,
    /// The client, in the packet path.
    #[serde(rename = "source.address", skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Its port.
    #[serde(rename = "source.port", skip_serializing_if = "Option::is_none")]
    pub client_port: Option<u16>,
    /// Its id on the node, in the socket path.
    #[serde(rename = "process.pid", skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// The name of the thread, which it chooses itself.
    #[serde(rename = "thread.name", skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The path of its cgroup.
    #[serde(rename = "process.linux.cgroup", skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// The id of its cgroup.
    #[serde(rename = "mcs.cgroup_id", skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// The uid of its pod.
    #[serde(rename = "k8s.pod.uid", skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

impl TraceView {
    /// The import and the port, or the VIP.
    pub fn service(&self) -> String {
        match &self.import {
            Some(import) => format!("{import}:{}", self.port),
            None => SocketAddr::new(self.vip, self.port).to_string(),
        }
    }

    /// The backend, or why there is none.
    pub fn outcome(&self) -> String {
        match (address(self.backend, self.backend_port), &self.cluster) {
            (Some(backend), Some(cluster)) => format!("{backend} {cluster}"),
            (Some(backend), None) => backend,
            (None, _) => self.reason.to_string(),
        }
    }

    /// The client's address, or its thread and process.
    pub fn client(&self) -> String {
        let thread = || Some(format!("{}/{}", one_line(self.thread.as_ref()?), self.process?));
        let client = address(self.client, self.client_port).or_else(thread);
        client.unwrap_or_else(|| "-".to_owned())
    }
}

fn address(ip: Option<IpAddr>, port: Option<u16>) -> Option<String> {
    Some(SocketAddr::new(ip?, port?).to_string())
}

/// How many decisions there were so far. The first and the last line of `trace -o json`, and one after some were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceTotals {
    /// When they were counted.
    pub timestamp: Timestamp,
    /// Those that were printed.
    #[serde(rename = "mcs.shown")]
    pub shown: u64,
    /// Those that were looked at.
    #[serde(rename = "mcs.seen")]
    pub seen: u64,
    /// Those that found no room in the ring buffer.
    #[serde(rename = "mcs.lost")]
    pub lost: u64,
}
