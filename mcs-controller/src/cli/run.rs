//! `mcs-controller run`: flags and their values.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use clap::{Args, builder::BoolishValueParser};
use ipnet::IpNet;
use mcs_kube::{
    KubeconfigFile,
    program::{self, Listen, LogFilter, LogFormat, ParseError, http},
    reach::ProbePeers,
};

use crate::{
    clusterset::{ClusterId, NamespaceRules},
    controller::{self, Settings},
    objects::SecretReference,
    server::Published,
};

/// Run the controller.
///
/// Publishes the Services that this cluster exports, and imports those of its peers: it writes ServiceImports, imported
/// EndpointSlices and the status of ServiceExports. When it ends, what it has written stays.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-controller run
  mcs-controller run --kubeconfig east.conf --cluster-id east --clusterset shop
  mcs-controller run --mailbox-secret mailbox --mailbox mcs-east")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct RunArgs {
    /// Follow the API server that this file leads to [default: that of the pod's service account]
    #[arg(long, env = "MCS_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of --kubeconfig to use [default: the current one]
    #[arg(long, env = "MCS_CONTEXT", value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,

    /// This cluster's id, one DNS label [default: the ClusterProperty cluster.clusterset.k8s.io]
    #[arg(long, env = "MCS_CLUSTER_ID", value_name = "ID")]
    cluster_id: Option<ClusterId>,

    /// The name of the clusterset, from which its range of IPv6 VIPs follows. All clusters need the same
    /// [default: the ClusterProperty clusterset.k8s.io, or else `clusterset`]
    #[arg(long, env = "MCS_CLUSTERSET", value_name = "NAME")]
    clusterset: Option<String>,

    /// The controller's own namespace, with the Secrets that ClusterPeers name
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = "mcs-controller")]
    namespace: String,

    /// The namespace in which this cluster publishes what it exports
    #[arg(long, env = "MCS_MAILBOX", value_name = "NAMESPACE", default_value = "mcs-mailbox")]
    mailbox: String,

    /// Publish on the API server that this file leads to, a hub [default: in this cluster]
    #[arg(long, env = "MCS_MAILBOX_KUBECONFIG", value_name = "FILE")]
    mailbox_kubeconfig: Option<PathBuf>,

    /// The same, by the key `kubeconfig` of this Secret in --namespace. The controller renews its token, and follows changes
    #[arg(
        long,
        env = "MCS_MAILBOX_SECRET",
        value_name = "NAME",
        conflicts_with = "mailbox_kubeconfig"
    )]
    mailbox_secret: Option<String>,

    /// Only these namespaces can be exported; a `*` at the end stands for any rest [default: all but those of
    /// --no-export-namespaces]
    #[arg(long, env = "MCS_EXPORT_NAMESPACES", value_name = "PATTERN", value_delimiter = ',')]
    export_namespaces: Vec<String>,

    /// None of these namespaces can be exported
    #[arg(
        long,
        env = "MCS_NO_EXPORT_NAMESPACES",
        value_name = "PATTERN",
        value_delimiter = ',',
        default_value = "default,kube-*"
    )]
    no_export_namespaces: Vec<String>,

    /// The range of new VIPs, one for each family. All clusters need the same [default: 241.0.0.0/8, and an
    /// IPv6 range that follows from the name of the clusterset]
    #[arg(long, env = "MCS_VIP_CIDR", value_name = "CIDR", value_delimiter = ',')]
    vip_cidr: Vec<IpNet>,

    /// A range of this cluster's Services; repeatable. No endpoint of a peer and no new VIP is in it [default: those of the
    /// cluster's ServiceCIDRs, which Kubernetes has from 1.33 on; unknown before]
    #[arg(long, env = "MCS_SERVICE_CIDR", value_name = "CIDR", value_delimiter = ',')]
    service_cidr: Vec<IpNet>,

    /// A range of this cluster's pods; repeatable. Endpoints of peers with such addresses are refused, a peer with such a range
    /// gets the condition CIDRsDisjoint=False, and no new VIP is in it [default: those that its Nodes have]
    #[arg(long, env = "MCS_POD_CIDR", value_name = "CIDR", value_delimiter = ',')]
    pod_cidr: Vec<IpNet>,

    /// Take over ServiceImports that others have written. They keep their VIPs
    #[arg(long, env = "MCS_ADOPT")]
    adopt: bool,

    /// Create the namespaces of services that peers export to this cluster [default: a service is imported only where its
    /// namespace exists]
    #[arg(long, env = "MCS_CREATE_NAMESPACES")]
    create_namespaces: bool,

    /// Write a Service for each import, for Gateway implementations that lead to Services alone. It has no address of its
    /// own, and kube-proxy leaves it alone. Without the flag the controller deletes those that it has written
    #[arg(long, env = "MCS_DERIVED_SERVICE")]
    derived_service: bool,

    /// How many writes of up to 32 KiB a peer may cause a second, so that churn in one cluster does not load the API servers
    /// of the others: slices, imports with their status, namespaces. The tenants of this cluster may cause five times as
    /// many, slices not counted
    #[arg(long, env = "MCS_PEER_WRITES", value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    peer_writes: u32,

    /// Tell agents which ranges ClusterSetIPs are in, by the ClusterProperty vip-ranges.clusterset.mcs-agent.io: those without
    /// ranges of their own then reject other addresses, also of imports that other controllers write
    #[arg(long, env = "MCS_TELL_VIP_RANGES")]
    tell_vip_ranges: bool,

    /// Connect to a few pods of each peer every 25 seconds, for the condition `PodsReachable` of ClusterPeers and its
    /// metrics. Nothing is sent over the connections
    #[arg(long, env = "MCS_PROBE_PEERS", value_name = "WHETHER", default_value = "on")]
    probe_peers: ProbePeers,

    /// How often that is: for tests
    #[arg(long, hide = true, value_name = "SECONDS", default_value_t = 25,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    probe_period: u64,

    /// The name of this replica. With it, replicas elect a leader by a Lease, and only that one writes [default:
    /// this replica writes]
    #[arg(long, env = "MCS_POD_NAME", value_name = "NAME")]
    replica: Option<String>,

    /// Serve /livez and /readyz here, or `off`. Each address serves all paths
    #[arg(
        long,
        env = "MCS_HEALTH_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:16460"
    )]
    health_address: Listen,

    /// Serve /metrics here, or `off`
    #[arg(
        long,
        env = "MCS_METRICS_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:16461"
    )]
    metrics_address: Listen,

    /// Serve a page for people at /page of these addresses too, to clients in the same network namespace alone, such as a
    /// port-forward: `mcs ui --controller`
    #[arg(long, env = "MCS_PAGE", value_parser = BoolishValueParser::new())]
    page: bool,

    /// How to log, on standard error
    #[arg(long, env = "MCS_LOG_FORMAT", value_name = "FORMAT", default_value = "human")]
    log_format: LogFormat,

    /// What to log: error, warn, info, debug, trace, or directives (`warn,mcs_controller=debug`)
    #[arg(long, env = "MCS_LOG", value_name = "FILTER", default_value = "info",
        value_parser = log_filter)]
    log: LogFilter,
}

/// A level alone is the controller's: libraries say what is wrong only.
fn log_filter(text: &str) -> Result<LogFilter, ParseError> {
    LogFilter::parse(text, |level| {
        format!(
            "warn,kube_client=off,kube_lease_manager=off,mcs_controller={level},mcs_kube={level}"
        )
    })
}

pub(super) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    program::start_logs(args.log_format, &args.log);
    let published = Arc::new(Published::new(args.page)?);
    let counting = Arc::clone(&published);
    let beside = async move { counting.follow_figures().await };
    http::start(args.health_address.0, args.metrics_address.0, &published, beside)?;
    let settings = args.into_settings()?;
    program::block_on(controller::run(settings, published))?;
    Ok(ExitCode::SUCCESS)
}

impl RunArgs {
    fn into_settings(self) -> anyhow::Result<Settings> {
        let (mut vips_v4, mut vips_v6) = (None, None);
        for range in self.vip_cidr {
            let former = match range {
                IpNet::V4(range) => vips_v4.replace(range).is_some(),
                IpNet::V6(range) => vips_v6.replace(range).is_some(),
            };
            if former {
                bail!("--vip-cidr has two ranges of one family: give one for each");
            }
        }
        let context = self.context;
        Ok(Settings {
            kubeconfig: self.kubeconfig.map(|path| KubeconfigFile::new(path, context)),
            cluster: self.cluster_id,
            clusterset: self.clusterset,
            namespace: self.namespace,
            mailbox: self.mailbox,
            mailbox_kubeconfig: self.mailbox_kubeconfig.map(|path| KubeconfigFile::new(path, None)),
            mailbox_secret: self.mailbox_secret.map(SecretReference::named),
            exports: NamespaceRules {
                allow: self.export_namespaces,
                deny: self.no_export_namespaces,
            },
            vips_v4,
            vips_v6,
            service_ranges: self.service_cidr,
            pod_ranges: self.pod_cidr,
            adopt: self.adopt,
            create_namespaces: self.create_namespaces,
            derived_services: self.derived_service,
            peer_writes: self.peer_writes,
            tells_vip_ranges: self.tell_vip_ranges,
            probe_period: (self.probe_peers == ProbePeers::On)
                .then(|| Duration::from_secs(self.probe_period)),
            identity: self.replica,
        })
    }
}
