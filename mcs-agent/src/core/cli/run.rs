//! `mcs-agent run`: flags and their values.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::bail;
use clap::{Args, ValueEnum, builder::BoolishValueParser};
use ipnet::IpNet;
use mcs_kube::program::{self, Listen, LogFilter, LogFormat, ParseError};
use mcs_kube::reach::ProbePeers;

use super::BpffsArg;
use crate::core::{
    control::{self, Config, SocketLb, TcAttach},
    feature::{self, ChosenFeatures},
    kernel::{
        devices::{DeviceOptions, DevicePattern, DevicePatterns, TcMode, Uplinks},
        flows::FlowCapacity,
    },
    model::{Memory, MemoryError, NodeFacts},
    source::{ReadFrom, SourceOptions},
};

/// Run the agent.
///
/// Reads ServiceImports and imported EndpointSlices, writes the maps and attaches the programs. On
/// SIGTERM or SIGINT the agent exits and the dataplane keeps working; `mcs-agent cleanup` removes it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-agent run --manifests /etc/mcs
  mcs-agent run --kubeconfig /etc/kubernetes/agent.conf --node-name $(hostname)
  mcs-agent run --manifests /etc/mcs --cluster-id east --node-name $(hostname) --zone a
  mcs-agent run --manifests ./examples --bpffs /sys/fs/bpf/two --cgroup-root /sys/fs/cgroup/two")]
pub struct RunArgs {
    /// Follow the API server that this file leads to [default: $KUBECONFIG, or the pod's service account]
    #[arg(long, env = "MCS_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of --kubeconfig to use [default: the current one]
    #[arg(long, env = "MCS_CONTEXT", value_name = "NAME")]
    context: Option<String>,

    /// The API group of ServiceImports
    #[arg(
        long,
        env = "MCS_IMPORT_GROUP",
        value_name = "GROUP",
        default_value = "multicluster.x-k8s.io"
    )]
    import_group: String,

    /// Follow only the ServiceImports with these labels, for a roll-out service by service:
    /// `shop=cart`, `tier in (web,api)`, `!legacy` [default: all]
    #[arg(long, env = "MCS_IMPORT_SELECTOR", value_name = "LABELS")]
    import_selector: Option<String>,

    #[command(flatten)]
    bpffs: BpffsArg,

    /// Attach socket programs to this cgroup v2 directory, or to `unified` in it on a hybrid host
    /// [default: the root, from the mount table]
    #[arg(long, env = "MCS_CGROUP_ROOT", value_name = "DIR")]
    cgroup_root: Option<PathBuf>,

    /// Which processes get socket load balancing
    #[arg(long, env = "MCS_SOCKET_LB", value_name = "WHOSE", default_value = "all")]
    socket_lb: SocketLb,

    /// Where packets of pods are translated too, for traffic that the socket path does not see: VMs,
    /// gVisor, raw sockets, forwarded packets
    #[arg(long, env = "MCS_TC", value_name = "WHERE", default_value = "auto")]
    tc: TcMode,

    /// Host devices that lead to pods: names (`cali*`), kinds (`kind=tun`), exclusions (`!veth0*`). The
    /// first pattern that matches decides. If all are exclusions, they apply to the default. Uplinks are
    /// never included [default: every veth whose peer is in another network namespace]
    #[arg(long, env = "MCS_TC_DEVICES", value_name = "PATTERN", value_delimiter = ',')]
    tc_devices: Vec<DevicePattern>,

    /// Devices on which packets to a ClusterSetIP are dropped, so that they do not leave the node: patterns
    /// as for --tc-devices, or `none` [default: those of the default routes]
    #[arg(long, env = "MCS_UPLINKS", value_name = "PATTERN", value_delimiter = ',')]
    uplinks: Vec<DevicePattern>,

    /// How to attach programs to devices
    #[arg(long, env = "MCS_TC_ATTACH", value_name = "HOW", default_value = "auto")]
    tc_attach: TcAttach,

    /// This node's name, for internalTrafficPolicy Local and forNodes hints, and for its zone
    #[arg(long, env = "MCS_NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,

    /// This node's zone, for forZones hints and trafficDistribution [default: from an API server, the label
    /// topology.kubernetes.io/zone of --node-name]
    #[arg(long, env = "MCS_ZONE", value_name = "ZONE")]
    zone: Option<String>,

    /// This cluster's id, as in the label multicluster.kubernetes.io/source-cluster [default: from an
    /// API server, the ClusterProperty cluster.clusterset.k8s.io]
    #[arg(long, env = "MCS_CLUSTER_ID", value_name = "ID")]
    cluster_id: Option<String>,

    /// Accept only ClusterSetIPs in this range; repeatable [default: from an API server, the ranges that
    /// mcs-controller writes to the ClusterProperty vip-ranges.clusterset.mcs-agent.io; without it, any]
    #[arg(long, env = "MCS_VIP_CIDR", value_name = "CIDR", value_delimiter = ',',
        value_parser = range)]
    vip_cidr: Vec<IpNet>,

    /// The range of the addresses of this cluster's Services; repeatable. An import without slices is left
    /// alone if its address is in this range [default: from an API server, its ServiceCIDRs; unknown
    /// otherwise]
    #[arg(long, env = "MCS_SERVICE_CIDR", value_name = "CIDR", value_delimiter = ',',
        value_parser = range)]
    service_cidr: Vec<IpNet>,

    /// A range of the addresses of pods, of this cluster or another; repeatable. No ClusterSetIP in it is accepted
    /// (from an API server, the podCIDRs of --node-name are always included)
    #[arg(long, env = "MCS_POD_CIDR", value_name = "CIDR", value_delimiter = ',',
        value_parser = range)]
    pod_cidr: Vec<IpNet>,

    /// An address of the API server, which is never accepted as a ClusterSetIP; repeatable (the API server
    /// in use and `KUBERNETES_SERVICE_HOST` are always included)
    #[arg(long, env = "MCS_API_SERVER", value_name = "IP", value_delimiter = ',')]
    api_server: Vec<IpAddr>,

    /// Size limit of the config maps: 40 to 80 bytes per endpoint and 520 per frontend. While they grow,
    /// the former maps use memory too. Objects beyond the limit are rejected
    #[arg(long, env = "MCS_MAX_MEMORY", value_name = "BYTES", default_value_t = Memory(256 << 20), value_parser = max_memory)]
    max_memory: Memory,

    /// Size of the flow table of the packet path. When it is full, the flow that was idle for longest is
    /// evicted
    #[arg(long, env = "MCS_MAX_FLOWS", value_name = "N", default_value_t = FlowCapacity::default().0,
        value_parser = clap::value_parser!(u32).range(256..=2_000_000))]
    max_flows: u32,

    /// Write the maps at most once in this time. The first change is written at once; those that follow sooner are
    /// written together when the time is over. 0: each at once
    #[arg(long, env = "MCS_MIN_SYNC_PERIOD", value_name = "MILLISECONDS", default_value_t = 25,
        value_parser = clap::value_parser!(u64).range(..=10_000))]
    min_sync_period: u64,

    /// Connect to two pods a minute of each other cluster, from this node, to see whether packets get there. Nothing is sent over
    /// the connections
    #[arg(long, env = "MCS_PROBE_PEERS", value_name = "WHETHER", default_value = "on")]
    probe_peers: ProbePeers,

    /// What the programs do once no agent that has read its source has given a sign of life for --orphan-after: it was
    /// deleted, or cannot start
    #[arg(long, env = "MCS_ORPHAN", value_name = "WHAT", default_value = "keep")]
    orphan: OrphanArg,

    /// How long a missing agent may take to come back, with --orphan=release
    #[arg(long, env = "MCS_ORPHAN_AFTER", value_name = "SECONDS", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(60..=604_800))]
    orphan_after: u64,

    /// Serve /livez, /readyz and /healthz here, or `off`. With the address of --metrics-address, one
    /// port serves all
    #[arg(
        long,
        env = "MCS_HEALTH_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:16450"
    )]
    health_address: Listen,

    /// Serve /metrics here, or `off`. For scrapes from other hosts, give the node's address, or
    /// `[::]:16451` for all addresses
    #[arg(
        long,
        env = "MCS_METRICS_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:16451"
    )]
    metrics_address: Listen,

    /// /livez fails if the control loop is stuck for this long; /healthz also fails if a change waits this
    /// long to be written
    #[arg(long, env = "MCS_LIVENESS_TIMEOUT", value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(10..=3600))]
    liveness_timeout: u64,

    /// Write the status file below this directory
    #[arg(long, env = "MCS_RUN_DIR", value_name = "DIR", default_value = "/run/mcs-agent")]
    run_dir: PathBuf,

    /// How to log, on standard error
    #[arg(long, env = "MCS_LOG_FORMAT", value_name = "FORMAT", default_value = "human")]
    log_format: LogFormat,

    /// What to log: error, warn, info, debug, trace, or directives (`warn,mcs_agent=debug`)
    #[arg(long, env = "MCS_LOG", value_name = "FILTER", default_value = "info",
        value_parser = log_filter)]
    log: LogFilter,

    /// Make the eBPF programs log each translation, for debugging
    #[arg(long, env = "MCS_LOG_PROGRAMS", value_parser = BoolishValueParser::new())]
    log_programs: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OrphanArg {
    /// Continue with the maps as they are
    Keep,
    /// Leave ClusterSetIPs alone, as if the agent had been removed; established connections and flows continue
    Release,
}

/// A level alone is the agent's: libraries say what is wrong only, and the programs say what they were told to log.
/// (Those of netlink would repeat at every look what they do not know of a device.)
fn log_filter(text: &str) -> Result<LogFilter, ParseError> {
    LogFilter::parse(text, |level| {
        format!(
            "warn,netlink_proto=off,netlink_packet_route=off,kube_client=off,mcs_agent={level},mcs_kube={level},mcs_ebpf=debug"
        )
    })
}

pub(super) fn run(
    args: RunArgs,
    features: ChosenFeatures,
    misspelt: &[String],
) -> anyhow::Result<ExitCode> {
    control::share_heap();
    program::start_logs(args.log_format, &args.log);
    for variable in misspelt {
        tracing::warn!("{variable}");
    }
    let config = args.into_config(&features)?;
    program::block_on(control::run(config, features))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(any(test, feature = "testing"))]
impl ChosenFeatures {
    /// The list, with these flags of `run` and the defaults of all others.
    pub fn with(list: &'static [feature::Definition], flags: &[&str]) -> Self {
        let run = RunArgs::augment_args(clap::Command::new("run"));
        let command = feature::with_flags(list, run);
        Self { list, flags: command.get_matches_from(["run"].iter().chain(flags)) }
    }
}

impl RunArgs {
    fn into_config(self, features: &ChosenFeatures) -> anyhow::Result<Config> {
        let mut api_servers = self.api_server;
        let pods_own = std::env::var("KUBERNETES_SERVICE_HOST").ok();
        // A host name is resolved at each connection, so only an address can be excluded here.
        api_servers.extend(pods_own.as_ref().and_then(|host| host.parse::<IpAddr>().ok()));
        let mut from = ReadFrom {
            kubeconfig: self.kubeconfig,
            context: self.context,
            import_group: self.import_group,
            import_selector: self.import_selector,
            ..ReadFrom::default()
        };
        for feature in features.list {
            (feature.reads)(&features.flags, &mut from)?;
        }
        let is_of_feature = feature::source(features.list, &from).is_some();
        if !is_of_feature && from.kubeconfig.is_none() {
            from.kubeconfig = kubeconfig_of_environment()?;
        }
        if from.context.is_some() && from.kubeconfig.is_none() {
            bail!("--context needs --kubeconfig or KUBECONFIG");
        }
        if !is_of_feature && from.kubeconfig.is_none() && pods_own.is_none() {
            bail!(
                "nothing to read objects from: give --manifests or --kubeconfig, set KUBECONFIG, or run in a pod"
            );
        }
        // Another process that reads there too may be in another directory.
        from.kubeconfig = from.kubeconfig.map(|path| std::path::absolute(&path).unwrap_or(path));
        if !is_of_feature && self.node_name.is_none() {
            tracing::warn!(
                "--node-name is not given: topology hints, trafficDistribution and internalTrafficPolicy: Local do not \
                 know this node, nor its zone unless --zone gives it"
            );
        }
        let source = SourceOptions {
            from,
            node: self.node_name.clone(),
            zone: self.zone.is_none(),
            cluster_id: self.cluster_id.is_none(),
            service_ranges: self.service_cidr.is_empty(),
            vip_ranges: self.vip_cidr.is_empty(),
            only: None,
        };
        Ok(Config {
            source,
            bpffs: self.bpffs.bpffs,
            cgroup_root: self.cgroup_root,
            socket_lb: self.socket_lb,
            packets: DeviceOptions {
                mode: self.tc,
                pods: DevicePatterns(self.tc_devices),
                uplinks: uplinks(self.uplinks),
            },
            tc_attach: self.tc_attach,
            node_name: self.node_name,
            node: NodeFacts {
                zone: self.zone,
                cluster_id: self.cluster_id,
                api_servers: api_servers.into_iter().collect(),
                service_ranges: Some(self.service_cidr.into_iter().collect())
                    .filter(|ranges: &BTreeSet<IpNet>| !ranges.is_empty()),
                pod_ranges: self.pod_cidr.into_iter().collect(),
                ..NodeFacts::default()
            },
            vip_cidrs: self.vip_cidr,
            max_memory: self.max_memory,
            flows: FlowCapacity(self.max_flows),
            min_sync_period: Duration::from_millis(self.min_sync_period),
            probe_peers: self.probe_peers,
            release_after: (self.orphan == OrphanArg::Release)
                .then(|| Duration::from_secs(self.orphan_after)),
            health_address: self.health_address.0,
            metrics_address: self.metrics_address.0,
            liveness_timeout: Duration::from_secs(self.liveness_timeout),
            run_dir: self.run_dir,
            log_programs: self.log_programs,
        })
    }
}

/// `$KUBECONFIG`, if it names a file.
fn kubeconfig_of_environment() -> anyhow::Result<Option<PathBuf>> {
    let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) else {
        return Ok(None);
    };
    let mut paths = std::env::split_paths(&paths);
    let first = paths.next();
    if paths.next().is_some() {
        bail!("KUBECONFIG names several files: give one of them by --kubeconfig");
    }
    Ok(first)
}

/// At least enough for one service, and at most what 32-bit indices reach.
fn max_memory(text: &str) -> Result<Memory, String> {
    let memory: Memory = text.parse().map_err(|error: MemoryError| error.to_string())?;
    if (Memory(64 << 10)..=Memory(32 << 30)).contains(&memory) {
        return Ok(memory);
    }
    Err("write at least 64Ki and at most 32Gi".to_owned())
}

/// Reads a range such as `10.96.0.0/16`.
fn range(text: &str) -> Result<IpNet, String> {
    match text.parse() {
        Ok(range) => Ok(range),
        Err(_) if text.parse::<IpAddr>().is_ok() => {
            Err(format!("the prefix length is missing: write {text}/N"))
        }
        Err(_) => Err("write an address and a prefix length, such as 10.96.0.0/16".to_owned()),
    }
}

/// `none` alone means no uplink, not a device of that name.
fn uplinks(patterns: Vec<DevicePattern>) -> Uplinks {
    match patterns.as_slice() {
        [only] if only.to_string() == "none" => Uplinks::None,
        _ => Uplinks::Chosen(DevicePatterns(patterns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_needs_a_prefix_length() {
        assert!(range("10.96.0.0/16").is_ok());
        let missing = range("10.0.0.0").unwrap_err();
        assert_eq!(missing, "the prefix length is missing: write 10.0.0.0/N");
        assert!(range("ten").unwrap_err().starts_with("write an address"));
    }
}
