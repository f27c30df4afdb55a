//! `cargo xtask clusters`: real Kubernetes clusters on this machine.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::{Subcommand, ValueEnum};
use mcs_tests::cluster::{
    self, Claim, Cluster, ClusterSet, Cni, Kubectl, Kubernetes, Observer, Plan, Programs,
};

use crate::{
    interrupt::{INTERRUPTED, Interrupt},
    process,
    screen::{Screen, say},
    setup::{self, Purpose},
    workspace::Workspace,
};

mod clusterset;

/// Run real Kubernetes clusters on this machine
///
/// Every node is a set of namespaces with its own containerd, kubelet and kube-proxy; there is no Docker, and nothing is
/// pulled. Pods of all clusters reach each other, IPv4 and IPv6. The first time, Kubernetes is built from the Go module
/// proxy. Takes root.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose clusters
    #[arg(long, value_enum, default_value_t, global = true)]
    set: Set,
    #[command(subcommand)]
    verb: Verb,
}

/// Clusters that can run beside each other.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Set {
    /// Yours
    #[default]
    Development,
    /// Those of the end-to-end suite
    Tests,
    /// Those of the suite of CNIs
    Cnis,
}

impl From<Set> for ClusterSet {
    fn from(set: Set) -> Self {
        match set {
            Set::Development => Self::DEVELOPMENT,
            Set::Tests => Self::TESTS,
            Set::Cnis => Self::CNIS,
        }
    }
}

#[derive(Subcommand)]
enum Verb {
    /// Start clusters, and return when they are ready
    Up {
        #[command(flatten)]
        plan: Plan,
        /// Also install the chart `mcs`, link the clusters, export a service of all, and check them. The last lines are
        /// requests by its name, which pods of all clusters answer
        #[arg(long)]
        mcs: bool,
        /// With --mcs: an archive that has the image of both programs, instead of a new one
        #[arg(long, requires = "mcs", value_name = "ARCHIVE")]
        image: Option<PathBuf>,
    },
    /// Remove them, without a trace
    Down,
    /// Show what runs; exit with 1 if something does not
    Status,
    /// Give every node the images of an archive, as OCI or Docker has it
    Load {
        /// The archive
        archive: PathBuf,
    },
    /// Print the path of a cluster's kubeconfig
    Kubeconfig {
        /// Its number, from 1
        #[arg(value_name = "N")]
        number: u8,
    },
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("error: cargo xtask clusters takes root, to make namespaces and cgroups");
        return Ok(ExitCode::from(2));
    }
    let set = args.set.into();
    match &args.verb {
        Verb::Up { plan, mcs, image } => up(workspace, set, plan, *mcs, image.as_deref()),
        Verb::Down => {
            cluster::remove(&Claim::take(set)?)?;
            say("Nothing is left of the clusters.");
            Ok(ExitCode::SUCCESS)
        }
        Verb::Status => status(workspace, set),
        Verb::Load { archive } => load(workspace, set, archive),
        Verb::Kubeconfig { number } => {
            let running = cluster::clusters(set).find(|cluster| cluster.number == *number);
            let running = running.with_context(|| format!("there is no cluster {number}"))?;
            say(running.kubeconfig().display());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn up(
    workspace: &Workspace,
    set: ClusterSet,
    plan: &Plan,
    mcs: bool,
    image: Option<&Path>,
) -> Result<ExitCode> {
    if plan.kubernetes.contains(&Kubernetes::Oldest) {
        setup::ensure(workspace, &[Purpose::Clusters])?;
    } else {
        setup::ensure_newest(workspace)?;
    }
    if mcs {
        setup::ensure(workspace, &[Purpose::Build])?;
    }
    let programs = if plan.cni.contains(&Cni::Cilium) {
        setup::ensure(workspace, &[Purpose::Cnis])?;
        with_cnis(workspace)?
    } else {
        programs(workspace)?
    };
    let terminal = Terminal {
        screen: Screen::new(),
        interrupt: Interrupt::listen().context("cannot handle signals")?,
    };
    match cluster::start(&Claim::take(set)?, plan, &programs, &terminal) {
        Err(_) if terminal.interrupt.came() => {
            terminal.progress("interrupted; everything is removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
        Ok(()) => {
            terminal.progress("everything is ready");
            terminal.screen.title("To try");
            terminal.screen.block(&explain(set, &programs)?);
            if mcs {
                clusterset::install(workspace, set, &programs, image, &terminal)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn status(workspace: &Workspace, set: ClusterSet) -> Result<ExitCode> {
    let places = cluster::places(set)?;
    if places.is_empty() {
        say("There are no clusters.");
        return Ok(ExitCode::FAILURE);
    }
    for place in &places {
        let ended: Vec<_> = place.ended.iter().map(|name| format!("{name} (ended)")).collect();
        let daemons = [place.running.as_slice(), &ended].concat().join(", ");
        say(format_args!("{:<12}{daemons}", place.name));
    }
    let programs = programs(workspace)?;
    let mut complete = places.iter().all(|place| place.ended.is_empty());
    for cluster in cluster::clusters(set) {
        say("");
        let mut command = Kubectl::new(&programs, cluster)?.command();
        command.args(["get", "nodes,pods", "--all-namespaces", "--output", "wide"]);
        if let Err(error) = process::run(&mut command) {
            say(format_args!("{cluster}: {error:#}"));
            complete = false;
        }
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load(workspace: &Workspace, set: ClusterSet, archive: &Path) -> Result<ExitCode> {
    let programs = programs(workspace)?;
    let mut nodes = cluster::clusters(set).flat_map(cluster::nodes).peekable();
    nodes.peek().context("there is no node")?;
    for node in nodes {
        cluster::import(&programs, node, archive)?;
        say(format_args!("{node} has them"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The programs in the cache.
fn programs(workspace: &Workspace) -> Result<Programs> {
    Ok(Programs::new(setup::cluster_programs(workspace, &[Purpose::Clusters])?))
}

/// The same, and CNIs of others.
fn with_cnis(workspace: &Workspace) -> Result<Programs> {
    let purposes = [Purpose::Clusters, Purpose::Cnis];
    let programs = Programs::new(setup::cluster_programs(workspace, &purposes)?);
    Ok(programs.with_sources(setup::sources(workspace, &[Purpose::Cnis])?))
}

/// How to use what has been started.
fn explain(set: ClusterSet, programs: &Programs) -> Result<String> {
    let directories = ["kubectl", "helm"].map(|name| {
        let program = programs.find(name)?;
        anyhow::Ok(program.parent().context("a program without directory")?.display().to_string())
    });
    let [kubectl, helm] = directories;
    let clusters = set.command();
    Ok(format!(
        "export PATH={}:{}:$PATH\n\
         export KUBECONFIG=$({clusters} kubeconfig 1)\n\
         kubectl get pods -A\n\
         \n\
         {clusters} load $(cargo xtask image | tail -n 1)\n\
         {}\n\
         {clusters} down\n",
        kubectl?,
        helm?,
        install(clusters, &cluster::clusters(set).collect::<Vec<_>>()),
    ))
}

/// How to make a clusterset, or to install the agent in the one cluster. Nodes do not have the ranges of their pods.
fn install(command: &str, clusters: &[Cluster]) -> String {
    if clusters.len() < 2 {
        return "kubectl apply -f deploy/kustomize/base/namespace.yaml\n\
                helm install mcs-agent deploy/helm/mcs-agent --namespace mcs-system\n"
            .to_owned();
    }
    let mut text = "target/container/mcs up --chart deploy/helm/mcs".to_owned();
    for cluster in clusters {
        let ranges = cluster.pods().map(|range| range.to_string()).join(",");
        let _ = write!(text, " \\\n  --pod-cidr {cluster}={ranges}");
    }
    for cluster in clusters {
        let _ = write!(text, " \\\n  $({command} kubeconfig {})", cluster.number);
    }
    text + "\n"
}

/// Shows progress, and stops at Ctrl-C.
struct Terminal {
    screen: Screen,
    interrupt: Interrupt,
}

impl Observer for Terminal {
    fn progress(&self, what: &str) {
        self.screen.progress(what);
    }

    fn check(&self) -> Result<()> {
        self.interrupt.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_try_makes_a_clusterset_of_several_clusters() {
        let clusters: Vec<_> = ClusterSet::DEVELOPMENT.clusters(2).collect();
        let text = install("cargo xtask clusters", &clusters);
        assert!(text.starts_with("target/container/mcs up --chart deploy/helm/mcs "), "{text}");
        for part in ["--pod-cidr c1=", "--pod-cidr c2=", "kubeconfig 1)", "kubeconfig 2)\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let alone = install("cargo xtask clusters", &clusters[..1]);
        assert!(alone.contains("helm install mcs-agent") && !alone.contains("mcs up"), "{alone}");
    }
}
