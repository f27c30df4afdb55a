use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use aya_log::Level;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    devices::Wishes,
    flows::FlowCapacity,
    model::{Capacity, NodeContext},
};

/// What `mcs-agent run` was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--manifests`.
    pub manifests: PathBuf,
    /// `--bpffs`.
    pub bpffs: PathBuf,
    /// `--cgroup-root`.
    pub cgroup_root: Option<PathBuf>,
    /// `--socket-lb`.
    pub socket_lb: SocketLb,
    /// `--tc`, `--tc-devices` and `--uplinks`.
    pub packets: Wishes,
    /// `--tc-attach`.
    pub tc_attach: TcAttach,
    /// `--node-name`.
    pub node_name: Option<String>,
    /// `--zone`.
    pub zone: Option<String>,
    /// `--cluster-id`.
    pub cluster_id: Option<String>,
    /// `--vip-cidr`.
    pub vip_cidrs: Vec<IpNet>,
    /// `--api-server`, and the one of the pod's environment.
    pub api_servers: BTreeSet<IpAddr>,
    /// `--max-frontends` and so on.
    pub capacity: Capacity,
    /// `--max-flows`.
    pub flows: FlowCapacity,
    /// `--run-dir`.
    pub run_dir: PathBuf,
    /// `--log-programs`.
    pub program_log: Option<Level>,
}

impl Config {
    /// What the rules get to know, the node's addresses aside.
    pub(super) fn node_context(&self) -> NodeContext {
        NodeContext {
            node_name: self.node_name.clone(),
            zone: self.zone.clone(),
            cluster_id: self.cluster_id.clone(),
            vip_cidrs: self.vip_cidrs.clone(),
            node_addresses: BTreeSet::new(),
            api_servers: self.api_servers.clone(),
            capacity: self.capacity,
        }
    }
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
