//! Real Kubernetes clusters on this machine, without Docker: etcd, the API server and all the rest
//! run as they are, from archives of images that are made here.
//!
//! A control plane is a network namespace. A [node] has its mounts, cgroups and host name to itself
//! as well. All of a set hangs on its name: its state lies in `/run/<name>`, and namespaces and
//! cgroups are called so. What a crash has left is found by it.

use std::{fmt, fs, os::unix::fs::DirBuilderExt as _, path::PathBuf, thread};

use anyhow::{Context as _, ensure};
use clap::{ValueEnum, value_parser};

pub use self::{
    addons::CLUSTER_PROPERTIES,
    cni::Cni,
    images::TOOLS,
    kubectl::Kubectl,
    layout::{Cluster, ClusterSet, Node},
    programs::{Programs, VARIABLE},
    removal::remove,
    status::{Place, clusters, places},
};
use self::{certificates::Authority, hierarchies::Hierarchies, network::Wan};

mod addons;
pub mod certificates;
mod cni;
mod containerd;
mod control_plane;
mod daemons;
mod hierarchies;
mod images;
mod kubeconfig;
mod kubectl;
mod layout;
mod network;
mod node;
mod programs;
mod removal;
mod status;

/// What to start.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Plan {
    /// How many clusters
    #[arg(long, default_value_t = 2, value_name = "COUNT", value_parser = value_parser!(u8).range(1..=i64::from(ClusterSet::MOST)))]
    pub clusters: u8,
    /// How many nodes in each; without any there is an API server alone
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = value_parser!(u8).range(..=i64::from(ClusterSet::MOST)))]
    pub nodes: u8,
    /// How pods are connected to their node
    #[arg(long, value_enum, default_value_t)]
    pub cni: Cni,
    /// How kube-proxy does its work
    #[arg(long, value_enum, default_value_t)]
    pub proxy: ProxyMode,
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

/// Whoever waits for clusters to start.
pub trait Observer: Sync {
    /// Hears what has been done.
    fn progress(&self, what: &str);
    /// An error if it should not go on.
    fn check(&self) -> anyhow::Result<()>;
}

/// What starting a cluster takes.
struct Workshop<'a> {
    plan: Plan,
    programs: &'a Programs,
    observer: &'a dyn Observer,
    hierarchies: Hierarchies,
    wan: Wan,
    images: PathBuf,
}

/// Starts clusters, and returns when every node is ready and DNS answers. What is there of the set
/// must not be in use; what an earlier one left is removed. After an error, [`remove`] is due.
pub fn start(
    set: ClusterSet,
    plan: Plan,
    programs: &Programs,
    observer: &dyn Observer,
) -> anyhow::Result<()> {
    let hierarchies = Hierarchies::find()?;
    ensure!(!status::is_running(set, &hierarchies), "{} is running already", set.name());
    remove(set)?;
    let directory = set.directory();
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let images = directory.join("images.tar");
    images::write(&images, programs).context("cannot write the archive of images")?;
    let wan = Wan::create(set, plan)?;
    let workshop = Workshop { plan, programs, observer, hierarchies, wan, images };
    thread::scope(|scope| {
        let workshop = &workshop;
        let start = |cluster| scope.spawn(move || start_cluster(workshop, cluster));
        let started: Vec<_> = set.clusters(plan.clusters).map(start).collect();
        started.into_iter().try_for_each(|cluster| {
            cluster.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn start_cluster(workshop: &Workshop<'_>, cluster: Cluster) -> anyhow::Result<()> {
    let observer = workshop.observer;
    let pki = cluster.directory().join("pki");
    let authority = Authority::create(pki, &format!("{cluster} authority"))?;
    let mut control_plane = control_plane::start(workshop, cluster, &authority)?;
    observer.progress(&format!("{cluster}: the API server is ready"));
    addons::install(workshop, cluster, &mut control_plane)?;
    let start = |node| node::start(workshop, node, &authority);
    let nodes: Vec<_> =
        cluster.nodes(workshop.plan.nodes).map(start).collect::<anyhow::Result<_>>()?;
    for node in nodes {
        node.wait(workshop)?;
    }
    if workshop.plan.nodes > 0 {
        observer.progress(&format!("{cluster}: every node is ready"));
        addons::wait_for_dns(workshop, cluster, &mut control_plane)?;
        observer.progress(&format!("{cluster}: DNS answers"));
    }
    Ok(())
}
