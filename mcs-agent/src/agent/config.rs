//! The configuration of the agent.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    devices::DeviceOptions,
    flows::FlowCapacity,
    loader::capacity_within,
    model::{Memory, NodeContext, NodeFacts, PassiveHealth},
    reach::ProbePeers,
    source::{KubernetesOptions, ReadScope},
};

/// How often the agent checks what changes without a notification: addresses of this node, devices.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The flags of `mcs-agent run`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
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
    /// `--zone`, `--cluster-id`, `--api-server` and `KUBERNETES_SERVICE_HOST`.
    pub node: NodeFacts,
    /// `--max-memory`.
    pub max_memory: Memory,
    /// `--max-flows`.
    pub flows: FlowCapacity,
    /// `--min-sync-period`.
    pub min_sync_period: Duration,
    /// `--stale-udp=destroy`.
    pub stale_udp: bool,
    /// `--stale-tcp=destroy`.
    pub stale_tcp: bool,
    /// `--probe-peers`.
    pub probe_peers: ProbePeers,
    /// `--passive-health`.
    pub passive_health: PassiveHealth,
    /// `--orphan-after` with `--orphan=release`; absent with `--orphan=keep`.
    pub release_after: Option<Duration>,
    /// `--health-address`; absent if it is off.
    pub health_address: Option<SocketAddr>,
    /// `--metrics-address`; absent if it is off.
    pub metrics_address: Option<SocketAddr>,
    /// `--page`.
    pub page: bool,
    /// `--metrics-imports`; 0 if nothing serves metrics.
    pub metrics_imports: u32,
    /// `--liveness-timeout`.
    pub liveness_timeout: Duration,
    /// `--run-dir`.
    pub run_dir: PathBuf,
    /// `--log-programs`.
    pub log_programs: bool,
    /// `--socket-slot-bits`.
    pub socket_slot_bits: u32,
}

impl Config {
    /// How many rows of figures there are: one for each import, and one for all others.
    pub(super) const fn figure_rows(&self) -> u32 {
        if self.metrics_imports == 0 { 0 } else { self.metrics_imports + 1 }
    }

    /// What the flags tell the rules about the node. Its addresses and the facts of the source are added later.
    pub(super) fn node_context(&self) -> NodeContext {
        NodeContext {
            stale_tcp: self.stale_tcp,
            passive_health: self.passive_health,
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
    pub fn in_directory(directory: &Path) -> Self {
        use crate::devices::{DevicePatterns, TcMode, Uplinks};

        let (pods, uplinks) = (DevicePatterns(vec![]), Uplinks::None);
        Self {
            source: SourceConfig::Manifests(directory.to_owned(), ReadScope::default()),
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
            stale_udp: false,
            stale_tcp: false,
            probe_peers: ProbePeers::Off,
            passive_health: PassiveHealth::Off,
            release_after: None,
            health_address: None,
            metrics_address: None,
            page: false,
            metrics_imports: 0,
            liveness_timeout: Duration::from_mins(1),
            run_dir: directory.join("run"),
            log_programs: false,
            socket_slot_bits: crate::loader::SOCKET_SLOT_BITS,
        }
    }
}

/// Where objects come from: `--manifests`, or an API server.
#[derive(Clone, Debug)]
pub enum SourceConfig {
    /// `--manifests`, and which of its objects are read.
    Manifests(PathBuf, ReadScope),
    /// `--kubeconfig`, or the pod's service account.
    Kubernetes(KubernetesOptions),
}

/// Where an agent reads objects, so that another process can read them too. Part of `status -o json`: fields are added,
/// never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadFrom {
    /// `--manifests`.
    pub manifests: Option<PathBuf>,
    /// `--kubeconfig`; without it and manifests, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--import-group`.
    pub import_group: String,
    /// `--import-selector`.
    pub import_selector: Option<String>,
    /// `--adopt`.
    pub adopt: Vec<String>,
}

impl ReadFrom {
    pub(super) fn of(source: &SourceConfig) -> Self {
        let (scope, manifests, options) = match source {
            SourceConfig::Manifests(directory, scope) => (scope, Some(directory), None),
            SourceConfig::Kubernetes(options) => (&options.scope, None, Some(options)),
        };
        let kubeconfig = options.and_then(|options| options.kubeconfig.as_ref());
        // The reader may be in another directory.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            manifests: manifests.map(|path| absolute(path)),
            // The agent takes one file.
            kubeconfig: kubeconfig.and_then(|file| file.paths.first()).map(|path| absolute(path)),
            context: kubeconfig.and_then(|file| file.context.clone()),
            import_group: scope.import_group.clone(),
            import_selector: options.and_then(|options| options.import_selector.clone()),
            adopt: scope.adopt.iter().map(ToString::to_string).collect(),
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
