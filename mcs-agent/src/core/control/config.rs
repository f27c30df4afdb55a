//! The configuration of the agent.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::ValueEnum;
use ipnet::IpNet;
use mcs_kube::reach::ProbePeers;
use serde::{Deserialize, Serialize};

use crate::core::{
    kernel::{devices::DeviceOptions, flows::FlowCapacity, loader::capacity_within},
    model::{Memory, NodeContext, NodeFacts},
    source::SourceOptions,
};

/// How often the agent checks what changes without a notification: addresses of this node, devices.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The flags of `mcs-agent run`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where objects come from.
    pub source: SourceOptions,
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
    /// `--zone`, `--cluster-id`, `--api-server` and `KUBERNETES_SERVICE_HOST`.
    pub node: NodeFacts,
    /// `--max-memory`.
    pub max_memory: Memory,
    /// `--max-flows`.
    pub flows: FlowCapacity,
    /// `--min-sync-period`.
    pub min_sync_period: Duration,
    /// `--probe-peers`.
    pub probe_peers: ProbePeers,
    /// `--orphan-after` with `--orphan=release`; absent with `--orphan=keep`.
    pub release_after: Option<Duration>,
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
    /// What the flags tell the rules about the node. Its addresses and the facts of the source are added later.
    pub(super) fn node_context(&self) -> NodeContext {
        NodeContext {
            node_name: self.node_name.clone(),
            facts: self.node.clone(),
            vip_cidrs: self.vip_cidrs.clone(),
            capacity: capacity_within(self.max_memory),
            ..NodeContext::default()
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Config {
    /// Socket programs, and none on devices. The agent listens nowhere, probes nobody, and has everything in this directory.
    pub fn in_directory(directory: &std::path::Path) -> Self {
        use crate::core::kernel::devices::{DevicePatterns, TcMode, Uplinks};

        let (pods, uplinks) = (DevicePatterns(vec![]), Uplinks::None);
        Self {
            source: SourceOptions::default(),
            bpffs: directory.to_owned(),
            cgroup_root: Some(directory.join("cgroup")),
            socket_lb: SocketLb::All,
            packets: DeviceOptions { mode: TcMode::Off, pods, uplinks },
            tc_attach: TcAttach::Auto,
            node_name: None,
            vip_cidrs: vec![],
            node: NodeFacts::default(),
            max_memory: Memory(256 << 20),
            flows: FlowCapacity::default(),
            min_sync_period: Duration::ZERO,
            probe_peers: ProbePeers::Off,
            release_after: None,
            health_address: None,
            metrics_address: None,
            liveness_timeout: Duration::from_mins(1),
            run_dir: directory.join("run"),
            log_programs: false,
        }
    }
}

/// Which processes get socket load balancing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketLb {
    /// Every process below the cgroup
    All,
    /// Only processes in the agent's network namespace, not those of pods (Linux 5.14)
    Host,
    /// No process
    Off,
}

/// How programs are attached to devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TcAttach {
    /// By tcx if the kernel has it (Linux 6.6), else by clsact
    Auto,
    /// By links of tcx
    Tcx,
    /// By filters on a clsact qdisc
    Clsact,
}
