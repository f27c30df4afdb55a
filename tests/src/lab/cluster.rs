//! Real Kubernetes clusters on this machine, without Docker. All components are unmodified; the nodes get
//! their images from archives that are built here.
//!
//! A control plane has a network namespace. A node also has separate mounts, cgroups and a host name. The name
//! of a set is part of the names of its namespaces and cgroups, and its state is in `/run/<name>`, so that the
//! next run finds what a crash has left.

use std::{
    fmt, fs,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::{Context as _, ensure};
use clap::{ValueEnum, value_parser};

pub use self::{
    addons::{CLUSTER_PROPERTIES, cluster_property, mcs_definitions},
    claim::Claim,
    cni::Cni,
    containerd::{import, tag},
    images::{TOOLS, TRAFFIC, write_traffic},
    kubectl::Kubectl,
    layout::{Cluster, ClusterSet, Node},
    own::OwnClusters,
    programs::{Kubernetes, OLDEST_KUBERNETES, Programs, VARIABLE, source_variable},
    proxyless::Proxyless,
    removal::remove,
    status::{Place, clusters, nodes, of_kubeconfig, places},
};
use self::{certificates::Authority, hierarchies::Hierarchies, network::Wan};

mod addons;
pub mod certificates;
mod cilium;
mod claim;
mod cni;
mod containerd;
mod control_plane;
mod daemons;
pub mod etcd;
mod flannel;
mod hierarchies;
mod images;
mod kubeconfig;
mod kubectl;
mod layout;
mod network;
mod node;
mod own;
mod programs;
mod proxyless;
mod removal;
mod status;

/// What to start.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// How many clusters
    #[arg(long, default_value_t = 2, value_name = "COUNT", value_parser = value_parser!(u8).range(1..=i64::from(ClusterSet::MOST)))]
    pub clusters: u8,
    /// How many nodes in each; without any there is an API server alone. If several are given, clusters take them in
    /// turn
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "COUNT", value_parser = value_parser!(u8).range(..=i64::from(ClusterSet::MOST)))]
    pub nodes: Vec<u8>,
    /// The version of Kubernetes; if several are given, clusters take them in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "newest")]
    pub kubernetes: Vec<Kubernetes>,
    /// How pods are connected to their node; if several are given, clusters take them in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ptp")]
    pub cni: Vec<Cni>,
    /// The mode of kube-proxy; if several are given, clusters take them in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nftables")]
    pub proxy: Vec<ProxyMode>,
    /// Pods of the first cluster are not connected, and nobody waits for its nodes, which do not get ready: the caller does both.
    #[arg(skip)]
    pub cni_later: bool,
}

impl Plan {
    /// The nodes of a cluster.
    pub fn nodes(&self, cluster: Cluster) -> impl Iterator<Item = Node> {
        cluster.nodes(in_turn(&self.nodes, cluster))
    }

    /// The version of Kubernetes of a cluster.
    pub fn kubernetes(&self, cluster: Cluster) -> Kubernetes {
        in_turn(&self.kubernetes, cluster)
    }

    /// How pods of a cluster are connected to their node.
    pub fn cni(&self, cluster: Cluster) -> Cni {
        in_turn(&self.cni, cluster)
    }

    /// Whether its pods are connected later.
    const fn cni_comes_later(&self, cluster: Cluster) -> bool {
        self.cni_later && cluster.number == 1
    }

    /// How kube-proxy does its work in a cluster.
    pub fn proxy(&self, cluster: Cluster) -> ProxyMode {
        in_turn(&self.proxy, cluster)
    }
}

fn in_turn<T: Copy + Default>(choices: &[T], cluster: Cluster) -> T {
    choices.iter().copied().cycle().nth(usize::from(cluster.number - 1)).unwrap_or_default()
}

/// A mode of kube-proxy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum ProxyMode {
    /// nftables
    #[default]
    Nftables,
    /// iptables
    Iptables,
}

impl fmt::Display for ProxyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        })
    }
}

/// Receives progress while clusters start.
pub trait Observer: Sync {
    /// Reports a finished step.
    fn progress(&self, what: &str);
    /// Returns an error to stop the start.
    fn check(&self) -> anyhow::Result<()>;
}

/// The options and programs for the start of a cluster.
struct ClusterSetup<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    observer: &'a dyn Observer,
    hierarchies: Hierarchies,
    wan: Wan,
    images: PathBuf,
}

impl ClusterSetup<'_> {
    /// The file of a program of Kubernetes, in the version of a cluster.
    fn kubernetes(&self, cluster: Cluster, name: &str) -> anyhow::Result<PathBuf> {
        self.programs.of_kubernetes(self.plan.kubernetes(cluster), name)
    }
}

/// Starts clusters, and returns when every node is ready and DNS answers. The set must not
/// be running. What an earlier run has left is removed first. After an error everything is removed.
pub fn start(
    claim: &Claim,
    plan: &Plan,
    programs: &Programs,
    observer: &dyn Observer,
) -> anyhow::Result<()> {
    let set = claim.set();
    let hierarchies = Hierarchies::find()?;
    ensure!(!status::is_running(set, &hierarchies), "{} is running already", set.name());
    remove(claim)?;
    start_clusters(set, plan, programs, observer, hierarchies).or_else(|error| {
        remove(claim).with_context(|| format!("{error:#}; after that"))?;
        Err(error)
    })
}

fn start_clusters(
    set: ClusterSet,
    plan: &Plan,
    programs: &Programs,
    observer: &dyn Observer,
    hierarchies: Hierarchies,
) -> anyhow::Result<()> {
    let directory = set.directory();
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let images = directory.join("images.tar");
    if plan.nodes.iter().any(|&count| count > 0) {
        images::write(&images, programs).context("cannot write the archive of images")?;
    }
    let wan = Wan::create(set, plan)?;
    let failures = Failures { observer, failures: Mutex::default() };
    let setup = ClusterSetup { plan, programs, observer: &failures, hierarchies, wan, images };
    thread::scope(|scope| {
        for cluster in set.clusters(plan.clusters) {
            let (setup, failures) = (&setup, &failures);
            scope.spawn(move || {
                if let Err(error) = start_cluster(setup, cluster) {
                    failures.list().push(error);
                }
            });
        }
    });
    let first = failures.list().drain(..).next();
    first.map_or(Ok(()), Err)
}

/// The errors, in order. An error ends the start of all clusters.
struct Failures<'a> {
    observer: &'a dyn Observer,
    failures: Mutex<Vec<anyhow::Error>>,
}

impl Failures<'_> {
    fn list(&self) -> MutexGuard<'_, Vec<anyhow::Error>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Failures<'_> {
    fn progress(&self, what: &str) {
        self.observer.progress(what);
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.list().is_empty(), "another cluster has failed");
        self.observer.check()
    }
}

fn start_cluster(setup: &ClusterSetup<'_>, cluster: Cluster) -> anyhow::Result<()> {
    let observer = setup.observer;
    let pki = cluster.directory().join("pki");
    let authority = Authority::create(pki, &format!("{cluster} authority"))?;
    let mut control_plane = control_plane::start(setup, cluster, &authority)?;
    observer.progress(&format!("{cluster}: the API server is ready"));
    addons::install_types(setup, cluster, &mut control_plane)?;
    if setup.plan.cni(cluster) == Cni::Cilium {
        cilium::install_types(setup, cluster)?;
    }
    let start = |node| node::start(setup, node, &authority);
    let nodes: Vec<_> = setup.plan.nodes(cluster).map(start).collect::<anyhow::Result<_>>()?;
    if nodes.is_empty() {
        return Ok(());
    }
    addons::install_dns(setup, cluster)?;
    if setup.plan.cni_comes_later(cluster) {
        return Ok(());
    }
    for node in nodes {
        node.wait(setup)?;
    }
    observer.progress(&format!("{cluster}: every node is ready"));
    addons::wait_for_dns(setup, cluster, &mut control_plane)?;
    observer.progress(&format!("{cluster}: DNS answers"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_take_turns() {
        let of = |choices: &[ProxyMode], number| {
            in_turn(choices, Cluster { set: ClusterSet::TESTS, number })
        };
        let both = [ProxyMode::Nftables, ProxyMode::Iptables];
        let modes = [1, 2, 3].map(|number| of(&both, number));
        assert_eq!(modes, [ProxyMode::Nftables, ProxyMode::Iptables, ProxyMode::Nftables]);
        assert_eq!(of(&[ProxyMode::Iptables], 2), ProxyMode::Iptables);
    }
}
