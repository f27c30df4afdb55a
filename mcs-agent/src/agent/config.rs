//! The configuration of the agent.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    devices::DeviceOptions,
    flows::FlowCapacity,
    loader::capacity_within,
    model::{Memory, NodeContext, NodeFacts},
    source::KubernetesOptions,
};

/// How often the agent checks what changes without a notification: addresses of this node, devices.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The flags of `mcs-agent run`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where objects come from.
    pub source: SourceConfig,
    /// `--bpffs`.
    pub bpffs: PathBuf,
    /// `--cgroup-root`.
    pub cgroup_root: Option<PathBuf>,
    /// `--socket-lb`.
    pub socket_lb: SocketLb,
    /// `--tc`, `--tc-devices` and `--uplinks`.
    pub packets: DeviceOptions,
    /// `--tc-attach`.
    pub tc_attach: TcAttach,
    /// `--node-name`.
    pub node_name: Option<String>,
    /// `--vip-cidr`.
    pub vip_cidrs: Vec<IpNet>,
    /// `--zone`, `--cluster-id`, `--api-server` and the one of the pod's environment.
    pub node: NodeFacts,
    /// `--max-memory`.
    pub max_memory: Memory,
    /// `--max-flows`.
    pub flows: FlowCapacity,
    /// `--stale-udp=destroy`.
    pub stale_udp: bool,
    /// `--health-address`; absent if it is off.
    pub health_address: Option<SocketAddr>,
    /// `--metrics-address`; absent if it is off.
    pub metrics_address: Option<SocketAddr>,
    /// `--liveness-timeout`.
    pub liveness_timeout: Duration,
    /// `--run-dir`.
    pub run_dir: PathBuf,
    /// `--log-programs`.
    pub log_programs: bool,
}

impl Config {
    /// What the rules get to know, the node's addresses and what the source knows aside.
    pub(super) fn node_context(&self) -> NodeContext {
        let mut node = NodeContext {
            node_name: self.node_name.clone(),
            vip_cidrs: self.vip_cidrs.clone(),
            capacity: capacity_within(self.max_memory),
            ..NodeContext::default()
        };
        node.learn(self.node.clone());
        node
    }
}

/// Where objects come from: `--manifests`, or an API server.
#[derive(Clone, Debug)]
pub enum SourceConfig {
    /// `--manifests`.
    Manifests(PathBuf),
    /// `--kubeconfig`, or what a pod is given.
    Kubernetes(KubernetesOptions),
}

/// Whose sockets are translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketLb {
    /// Every process below the cgroup.
    All,
    /// Those in the agent's own network namespace.
    Host,
    /// Nobody's: nothing is attached.
    Off,
}

/// How programs are attached to devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcAttach {
    /// By tcx where the kernel has it, else by clsact.
    Auto,
    /// By tcx.
    Tcx,
    /// By clsact.
    Clsact,
}
