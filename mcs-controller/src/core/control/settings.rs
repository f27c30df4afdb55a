//! The settings of the controller, as flags of `run`.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::ensure;
use clap::Args;
use ipnet::IpNet;
use mcs_kube::KubeconfigFile;

use crate::core::clusterset::{ClusterId, NamespaceRules};

/// The settings from the command line.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Follow the API server that this file leads to [default: that of the pod's service account]
    #[arg(long, env = "MCS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of --kubeconfig to use [default: the current one]
    #[arg(long, env = "MCS_CONTEXT", value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,

    /// This cluster's id, one DNS label [default: the ClusterProperty cluster.clusterset.k8s.io]
    #[arg(long = "cluster-id", env = "MCS_CLUSTER_ID", value_name = "ID")]
    pub cluster: Option<ClusterId>,

    /// The name of the clusterset, from which its range of IPv6 VIPs follows. All clusters need the same
    /// [default: the ClusterProperty clusterset.k8s.io, or else `clusterset`]
    #[arg(long, env = "MCS_CLUSTERSET", value_name = "NAME")]
    pub clusterset: Option<String>,

    /// The controller's own namespace, with the Secrets that ClusterPeers name
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = "mcs-controller")]
    pub namespace: String,

    /// The namespace in which this cluster publishes what it exports
    #[arg(long, env = "MCS_MAILBOX", value_name = "NAMESPACE", default_value = "mcs-mailbox")]
    pub mailbox: String,

    /// Publish on the API server that this file leads to, a hub [default: in this cluster]
    #[arg(long, env = "MCS_MAILBOX_KUBECONFIG", value_name = "FILE")]
    pub mailbox_kubeconfig: Option<PathBuf>,

    /// The same, by the key `kubeconfig` of this Secret in --namespace. The controller renews its token, and follows changes
    #[arg(
        long,
        env = "MCS_MAILBOX_SECRET",
        value_name = "NAME",
        conflicts_with = "mailbox_kubeconfig"
    )]
    pub mailbox_secret: Option<String>,

    /// Only these namespaces can be exported; a `*` at the end stands for any rest [default: all but those of
    /// --no-export-namespaces]
    #[arg(long, env = "MCS_EXPORT_NAMESPACES", value_name = "PATTERN", value_delimiter = ',')]
    pub export_namespaces: Vec<String>,

    /// None of these namespaces can be exported
    #[arg(
        long,
        env = "MCS_NO_EXPORT_NAMESPACES",
        value_name = "PATTERN",
        value_delimiter = ',',
        default_value = "default,kube-*"
    )]
    pub no_export_namespaces: Vec<String>,

    /// The range of new VIPs, one for each family. All clusters need the same [default: 241.0.0.0/8, and an
    /// IPv6 range that follows from the name of the clusterset]
    #[arg(long = "vip-cidr", env = "MCS_VIP_CIDR", value_name = "CIDR", value_delimiter = ',')]
    pub vip_ranges: Vec<IpNet>,

    /// A range of this cluster's Services; repeatable. No endpoint of a peer and no new VIP is in it [default: those of the
    /// cluster's ServiceCIDRs, which Kubernetes has from 1.33 on; unknown before]
    #[arg(
        long = "service-cidr",
        env = "MCS_SERVICE_CIDR",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub service_ranges: Vec<IpNet>,

    /// A range of this cluster's pods; repeatable. Endpoints of peers with such addresses are refused, a peer with such a range
    /// gets the condition CIDRsDisjoint=False, and no new VIP is in it [default: those that its Nodes have]
    #[arg(long = "pod-cidr", env = "MCS_POD_CIDR", value_name = "CIDR", value_delimiter = ',')]
    pub pod_ranges: Vec<IpNet>,

    /// Take over ServiceImports that others have written. They keep their VIPs
    #[arg(long, env = "MCS_ADOPT")]
    pub adopt: bool,

    /// Create the namespaces of services that peers export to this cluster [default: a service is imported only where its
    /// namespace exists]
    #[arg(long, env = "MCS_CREATE_NAMESPACES")]
    pub create_namespaces: bool,

    /// Write a Service for each import, for Gateway implementations that lead to Services alone. It has no address of its
    /// own, and kube-proxy leaves it alone. Without the flag the controller deletes those that it has written
    #[arg(long = "derived-service", env = "MCS_DERIVED_SERVICE")]
    pub derived_services: bool,

    /// How many writes of up to 32 KiB a peer may cause a second, so that churn in one cluster does not load the API servers
    /// of the others: slices, imports with their status, namespaces. The tenants of this cluster may cause five times as
    /// many, slices not counted
    #[arg(long, env = "MCS_PEER_WRITES", value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub peer_writes: u32,

    /// Where peers may ask this controller.
    #[arg(skip)]
    pub controllers: Vec<SocketAddr>,

    /// The name of this replica. With it, replicas elect a leader by a Lease, and only that one writes [default:
    /// this replica writes]
    #[arg(long = "replica", env = "MCS_POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
}

impl Settings {
    /// The kubeconfig of this cluster's API server; `None`: the service account of the pod.
    pub fn kubeconfig(&self) -> Option<KubeconfigFile> {
        self.kubeconfig.clone().map(|path| KubeconfigFile::new(path, self.context.clone()))
    }

    /// The namespaces that can be exported.
    pub fn exports(&self) -> NamespaceRules {
        NamespaceRules {
            allow: self.export_namespaces.clone(),
            deny: self.no_export_namespaces.clone(),
        }
    }

    /// Fails if the flags contradict each other.
    pub fn check(&self) -> anyhow::Result<()> {
        let of_v4 = self.vip_ranges.iter().filter(|range| matches!(range, IpNet::V4(_))).count();
        ensure!(
            of_v4 <= 1 && self.vip_ranges.len() - of_v4 <= 1,
            "--vip-cidr has two ranges of one family: give one for each"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    impl Settings {
        /// The settings by these flags.
        pub(crate) fn by(flags: &[&str]) -> Self {
            let command = Settings::augment_args(Command::new("run").no_binary_name(true));
            Self::from_arg_matches(&command.get_matches_from(flags)).unwrap()
        }

        /// The settings of tests without probes, with every namespace.
        pub(in crate::core::control) fn of_tests() -> Self {
            let flags = ["--no-export-namespaces=", "--peer-writes=1"];
            Self::by(&flags)
        }
    }

    #[test]
    fn a_family_has_one_range_of_vips() {
        let is_right = |ranges: &str| Settings::by(&["--vip-cidr", ranges]).check().is_ok();
        assert!(is_right("241.0.0.0/8,fd43::/64") && is_right("fd43::/64"));
        assert!(!is_right("241.0.0.0/8,242.0.0.0/8") && !is_right("fd43::/64,fd44::/64"));
    }
}
