//! Everything that the demonstration creates. It is removed when it is dropped.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use anyhow::Result;
use mcs_tests::{
    agent::{Agent, Source},
    bpffs::BpfDirectory,
    cgroup::{Cgroup, Visit},
    netns::Namespace,
    run::Run,
    site,
};

use super::{
    clusters::Clusters,
    example::{self, Cluster, Host},
    manifests::Manifests,
};
use crate::{interrupt::Interrupt, screen::Screen, workspace::Workspace};

/// All names that the demo makes begin with this.
pub(super) const PREFIX: &str = "mcs-demo";

/// Where clients run, on the agent's node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// A pod.
    Client,
    /// The node's own network namespace.
    Node,
    /// A pod whose processes are in no cgroup of the agent.
    Guest,
}

impl Place {
    pub(super) const ALL: [Self; 3] = [Self::Client, Self::Node, Self::Guest];
    /// Those where the agent sees sockets.
    pub(super) const WITH_HOOKS: [Self; 2] = [Self::Client, Self::Node];
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Node => "node",
            Self::Guest => "guest",
        })
    }
}

/// The node has no default route, by which the agent would know its uplink.
fn own_flags() -> [String; 2] {
    let uplink = format!("--uplinks={}", Cluster::West.node().role());
    let cluster = format!("--cluster-id={}", Cluster::East.name());
    [uplink, cluster]
}

/// Two clusters, and an agent on the node of one of them.
pub(super) struct World {
    // They are dropped in this order.
    pub(super) agent: Agent,
    pub(super) manifests: Manifests,
    pub(super) bpffs: BpfDirectory,
    /// Acts as the root cgroup of the node: the agent's programs are attached to it.
    pub(super) cgroup: Cgroup,
    pub(super) clusters: Clusters,
    run: Run,
}

impl World {
    /// Removes what an earlier run left, and makes everything.
    pub(super) fn create(
        workspace: &Workspace,
        screen: &Screen,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let run = Run::begin(PREFIX)?;
        screen.progress("making two clusters of network namespaces, their pods routed flat");
        let clusters = Clusters::create(&run)?;
        clusters.wait_for_pods()?;
        screen.block(&example::directory());
        interrupt.check()?;
        screen.progress("starting mcs-agent on the node of east, on a copy of deploy/examples");
        let manifests = Manifests::copy(
            workspace.root.join("deploy/examples"),
            run.directory().join("manifests"),
        )?;
        let source = Source::Manifests(manifests.path().to_owned());
        let cgroup = Cgroup::create(&run, "node")?;
        let bpffs = BpfDirectory::create(&run, "agent")?;
        let mut config = site::config(&run, "agent", source, &["--tc=auto"], &bpffs, &cgroup)?;
        config.flags.extend(own_flags());
        config.own_process_group = true;
        let agent = Agent::start(&clusters.node, config)?;
        let mut world = Self { agent, manifests, bpffs, cgroup, clusters, run };
        world.agent.wait_until_healthy()?;
        for place in Place::ALL {
            world.write_script(place)?;
        }
        Ok(world)
    }

    /// The network namespace of clients there.
    pub(super) fn netns(&self, place: Place) -> &Namespace {
        match place {
            Place::Client => &self.clusters.client,
            Place::Node => &self.clusters.node,
            Place::Guest => &self.clusters.guest,
        }
    }

    /// Makes this process one of that place, as far as cgroups go, until what is returned is
    /// dropped.
    pub(super) fn visit(&self, place: Place) -> Result<Option<Visit>> {
        let has_hooks = Place::WITH_HOOKS.contains(&place);
        has_hooks.then(|| self.cgroup.visit()).transpose()
    }

    /// A script that runs a command there.
    pub(super) fn script(&self, place: Place) -> PathBuf {
        self.run.directory().join(place.to_string())
    }

    /// What the agent logs.
    pub(super) fn log(&self) -> PathBuf {
        self.agent.config().log.clone()
    }

    /// Waits until the maps hold exactly these backends.
    pub(super) fn wait_for(&self, backends: &BTreeSet<Host>) -> Result<()> {
        self.agent.wait_for_frontends(example::NAME, &example::frontends(backends))
    }

    /// Starts a pod that has been stopped.
    pub(super) fn start(&self, host: Host) -> Result<()> {
        self.clusters.pod(host)?.start(&self.run)?;
        self.clusters.wait_for_pods()
    }

    fn write_script(&self, place: Place) -> Result<()> {
        let (which, cgroup) = if Place::WITH_HOOKS.contains(&place) {
            ("a", self.cgroup.path())
        } else {
            ("no", self.run.cgroup())
        };
        let script = format!(
            "#!/bin/sh\n\
             # Runs a command as a process of the {place}: in {which} cgroup of the agent's node and in the\n\
             # {place}'s network namespace. Nothing in there leads to a proxy.\n\
             unset http_proxy all_proxy ALL_PROXY\n\
             echo $$ >'{}/cgroup.procs'\n\
             exec nsenter --net='{}' -- \"$@\"\n",
            cgroup.display(),
            self.netns(place).path().display(),
        );
        let file = self.script(place);
        fs::write(&file, script)?;
        Ok(fs::set_permissions(&file, Permissions::from_mode(0o755))?)
    }
}
