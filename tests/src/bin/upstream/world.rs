//! What the cases share: the cluster, its mirror and its agents.

use std::env;

use mcs_tests::{
    cluster::{
        self, Cluster, ClusterSet, Cni, Kubectl, Kubernetes, Node, OwnClusters, Plan, Programs,
        ProxyMode, Proxyless,
    },
    prelude::*,
};

use crate::{
    agents, guard, images,
    mirror::Mirror,
    specs::{self, Run},
};

/// The variable with the path of the agent's image, as an archive.
const IMAGE: &str = "MCS_IMAGE";

/// As many as the specs of traffic distribution want: two in each of three zones.
const NODES: u8 = 6;
const ZONES: [&str; 3] = ["a", "b", "c"];

// They have to be removed in this order.
pub(crate) struct World {
    mirror: Option<Mirror>,
    pub(crate) programs: Programs,
    pub(crate) cluster: Cluster,
    /// Another one, whose pods serve in one of the cases.
    elsewhere: Cluster,
    pub(crate) directory: PathBuf,
    nodes: Vec<Node>,
    _clusters: OwnClusters,
}

impl World {
    /// Starts all of it. Returns the directory of the logs too.
    pub(crate) fn begin(keep: bool) -> Result<(Self, PathBuf)> {
        let programs = Programs::from_env();
        let plan = Plan {
            clusters: 2,
            nodes: vec![NODES, 1],
            kubernetes: vec![Kubernetes::Newest],
            cni: vec![Cni::Ptp],
            proxy: vec![ProxyMode::Nftables],
            cni_later: false,
        };
        let clusters = OwnClusters::start(ClusterSet::TESTS, &programs, &plan, keep)?;
        // It goes with the clusters, however this process ends.
        let directory = ClusterSet::TESTS.directory().join("suite");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let [cluster, elsewhere] = [1, 2].map(|number| Cluster { set: ClusterSet::TESTS, number });
        let nodes: Vec<_> = cluster::nodes(cluster).collect();
        let agent = env::var_os(IMAGE).map(PathBuf::from);
        let agent = agent
            .with_context(|| format!("{IMAGE} is not set: run `cargo xtask test upstream`"))?;
        let archive = directory.join("upstream.tar");
        images::write(&archive, &programs, &specs::images()?)?;
        for node in nodes.iter().copied().chain(cluster::nodes(elsewhere)) {
            cluster::import(&programs, node, &archive)?;
            cluster::import(&programs, node, &agent)?;
        }
        let kubectl = Kubectl::new(&programs, cluster)?;
        for (node, zone) in nodes.iter().zip(ZONES.into_iter().cycle()) {
            let zone = format!("topology.kubernetes.io/zone={zone}");
            kubectl.run(&["label", "--overwrite", "node", &node.to_string(), &zone])?;
        }
        let mirror = Some(Mirror::start(cluster, None)?);
        agents::install(&programs, cluster, "all")?;
        // Its connection to the Service `kubernetes` began with kube-proxy, whose it stays.
        for words in ["restart", "status"] {
            let rollout = ["--namespace", "kube-system", "rollout", words, "deployment", "coredns"];
            kubectl.run(&rollout)?;
        }
        let logs = directory.clone();
        let world =
            Self { mirror, programs, cluster, elsewhere, directory, nodes, _clusters: clusters };
        Ok((world, logs))
    }

    /// Every ClusterIP is the agents', and nobody serves node ports.
    pub(crate) fn without_proxy(&mut self) -> Result {
        agents::install(&self.programs, self.cluster, "all")?;
        guard::remove(&self.nodes)?;
        let _proxyless = Proxyless::stop(&self.programs, &self.nodes)?;
        specs::run(self, Run::WithoutProxy)
    }

    /// kube-proxy serves node ports, and what reaches it for a ClusterIP is dropped.
    pub(crate) fn beside_proxy(&mut self) -> Result {
        agents::install(&self.programs, self.cluster, "all")?;
        self.guarded(Run::BesideProxy)?;
        let dropped = guard::dropped(&self.nodes)?;
        ensure!(dropped == 0, "{dropped} packets to ClusterIPs were not translated by an agent");
        Ok(())
    }

    /// The same, and packets of pods are translated instead of their sockets.
    pub(crate) fn by_packets(&mut self) -> Result {
        agents::install(&self.programs, self.cluster, "host")?;
        self.guarded(Run::ByPackets)?;
        self.tell_dropped()
    }

    /// As beside kube-proxy, and pods of another cluster serve for those of this one.
    pub(crate) fn elsewhere(&mut self) -> Result {
        agents::install(&self.programs, self.cluster, "all")?;
        self.mirror = None;
        self.mirror = Some(Mirror::start(self.cluster, Some(self.elsewhere))?);
        let ended = self.guarded(Run::Elsewhere);
        self.mirror = None;
        self.mirror = Some(Mirror::start(self.cluster, None)?);
        ended?;
        self.tell_dropped()
    }

    /// Some specs dial Services that nobody may serve, or that have gone, and wait until nothing answers.
    fn tell_dropped(&self) -> Result {
        let dropped = guard::dropped(&self.nodes)?;
        tell(format!("{dropped} packets to ClusterIPs reached kube-proxy and were dropped"));
        Ok(())
    }

    fn guarded(&self, run: Run) -> Result {
        let services = self.cluster.services().map(|range| range.to_string());
        let another = matches!(run, Run::ByPackets).then(|| specs::ANOTHER_RANGE.to_owned());
        let ranges: Vec<_> = services.into_iter().chain(another).collect();
        guard::put(&self.nodes, &ranges)?;
        specs::run(self, run)
    }
}
