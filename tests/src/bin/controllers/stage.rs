//! Controllers of others with two member clusters, and the agent of the first one.

use std::array;

use crate::{
    beside::Ours,
    cilium::Cilium,
    karmada::Karmada,
    prelude::*,
    service::{add_pods, backends},
};

/// Controllers of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Cilium,
    /// The same as its chart installs it: its operators write no slices of other clusters.
    CiliumPlain,
    /// The oldest release that is tried.
    CiliumOldest,
    Karmada,
}

/// The processes of those controllers.
pub(crate) enum Neighbour {
    Cilium(Cilium),
    Karmada(Box<Karmada>),
}

// They have to be removed in this order.
pub(crate) struct Stage {
    /// The agent of the first cluster.
    pub(crate) site: Site<()>,
    /// The controllers of this project, where a case has started them.
    pub(crate) ours: Option<Ours>,
    pub(crate) neighbour: Neighbour,
    pub(crate) clusters: [Cluster; 2],
    pub(crate) kind: Kind,
    /// What runs: a name and a version.
    pub(crate) program: String,
}

impl Kind {
    /// The family in `tests/programs`.
    pub(crate) const fn family(self) -> &'static str {
        match self {
            Self::Cilium | Self::CiliumPlain => "cilium",
            Self::CiliumOldest => "cilium-oldest",
            Self::Karmada => "karmada",
        }
    }

    /// A program of the family, and its version.
    pub(crate) fn program(self, name: &str) -> Result<(PathBuf, String)> {
        Programs::from_env().of_family(self.family(), name)
    }

    /// A directory of the source of the family.
    pub(crate) fn source(self, below: &str) -> Result<PathBuf> {
        Ok(Programs::from_env().source(self.family())?.join(below))
    }

    /// Flags of the agent.
    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Karmada => &["--adopt=karmada"],
            _ => &[],
        }
    }
}

impl Stage {
    /// Starts clusters, controllers and the agent. `name` tells all of it from former stages.
    pub(crate) fn start(world: &World, kind: Kind, name: &str) -> Result<Self> {
        let control = &world.control;
        let clusters = thread::scope(|scope| {
            let starts = Cluster::IDS
                .into_iter()
                .zip(1..)
                .map(|(id, number)| scope.spawn(move || Cluster::start(control, name, id, number)));
            let ends = starts.collect::<Vec<_>>().into_iter();
            let started = ends.map(|one| one.join().ok().context("a panic")?);
            started.collect::<Result<Vec<_>>>()
        })?;
        let clusters: [Cluster; 2] =
            clusters.try_into().ok().context("two clusters were started")?;
        let (neighbour, version) = if kind == Kind::Karmada {
            let (karmada, version) = Karmada::start(world, name, &clusters)?;
            (Neighbour::Karmada(Box::new(karmada)), version)
        } else {
            let (cilium, version) = Cilium::start(world, kind, &clusters)?;
            (Neighbour::Cilium(cilium), version)
        };
        let source = Source::Kubeconfig(clusters[0].server.administrator()?);
        let id = format!("--cluster-id={}", clusters[0].id);
        let flags = [&[id.as_str()], kind.flags()].concat();
        let role = format!("agent-{name}");
        let mut site =
            Launch::new(&world.run, &role, &world.node.netns).flags(&flags).follows(source)?;
        site.wait_until_healthy()?;
        // The families of a project have its name and more.
        let program = format!("{} {version}", kind.family().split('-').next().unwrap_or_default());
        Ok(Self { site, ours: None, neighbour, clusters, kind, program })
    }

    /// Makes a namespace of all clusters, with the service's pods.
    pub(crate) fn add_namespace(&self, name: &str) -> Result {
        if let Neighbour::Karmada(karmada) = &self.neighbour {
            karmada.add_namespace(&self.clusters, name)?;
        }
        for cluster in &self.clusters {
            if self.kind != Kind::Karmada {
                cluster.add_namespace(name)?;
            }
            add_pods(cluster, name)?;
        }
        Ok(())
    }

    /// The backends of these clusters.
    pub(crate) fn backends_of(&self, clusters: &[usize]) -> BTreeSet<String> {
        clusters.iter().flat_map(|place| backends(&self.clusters[*place])).collect()
    }

    /// The first cluster, whose agent is looked at, and the other one.
    pub(crate) fn both(&self) -> [&Cluster; 2] {
        array::from_fn(|place| &self.clusters[place])
    }
}
