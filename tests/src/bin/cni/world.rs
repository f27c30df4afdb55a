//! What the cases share: two clusters, whose first one has the CNI and the agents.

use std::env;

use mcs_tests::cluster::{Kubernetes, OwnClusters, Plan, ProxyMode, Proxyless, TRAFFIC};
use tempfile::TempDir;

use crate::{clients::BY_PACKETS, prelude::*};

/// The variable with the path of the program of clients and servers, which is built static.
const PROGRAM: &str = "MCS_TRAFFIC";
/// The variable with the path of the agent's image, as an archive.
const IMAGE: &str = "MCS_IMAGE";
/// Pods that come and go.
const CHURN: &str = "churn";

// They have to be removed in this order.
pub(crate) struct World {
    stage: Option<Stage>,
    /// What the cases have seen.
    pub(crate) rows: Vec<Row>,
    programs: Programs,
    keep: bool,
    directory: TempDir,
}

/// Two clusters: `importer` has the CNI on two nodes and the agents; `exporter` has one node.
pub(crate) struct Stage {
    pub(crate) setting: Setting,
    order: Order,
    pub(crate) importer: Member,
    pub(crate) exporter: Member,
    pub(crate) release: Release,
    /// The nodes when the CNI alone was there.
    pub(crate) before: Option<Snapshot>,
    programs: Programs,
    proxyless: Option<Proxyless>,
    _clusters: OwnClusters,
}

impl World {
    /// Starts nothing. Returns the directory of the logs too.
    pub(crate) fn begin(keep: bool) -> Result<(Self, PathBuf)> {
        let directory = tempfile::Builder::new().prefix("mcs-cni-").tempdir()?;
        let (logs, programs) = (directory.path().to_owned(), Programs::from_env());
        Ok((Self { stage: None, rows: Vec::new(), programs, keep, directory }, logs))
    }

    /// The clusters with this CNI, and what is noted of them. The agents are there.
    pub(crate) fn enter(&mut self, setting: Setting, order: Order) -> Result<(&Stage, &mut Row)> {
        // The CNI comes later where clusters are new, or where its daemons start again with other options.
        let fits = |stage: &Stage| {
            let is_later = stage.setting != setting || stage.order == order;
            stage.setting.cni == setting.cni && (is_later || order == Order::CniFirst)
        };
        let stage = match self.stage.take().filter(fits) {
            Some(stage) => stage.with_setting(setting)?,
            None => Stage::start(self, setting, order)?,
        };
        let stage = stage.with_order(order)?;
        let number = self.rows.iter().position(|row| row.is_of(setting, order));
        let number = number.unwrap_or_else(|| {
            self.rows.push(Row::new(setting, order));
            self.rows.len() - 1
        });
        Ok((self.stage.insert(stage), &mut self.rows[number]))
    }
}

impl Stage {
    fn start(world: &World, setting: Setting, order: Order) -> Result<Self> {
        let programs = &world.programs;
        let plan = Plan {
            clusters: 2,
            nodes: vec![2, 1],
            kubernetes: vec![Kubernetes::Newest],
            cni: vec![setting.cni, Cni::Ptp],
            proxy: vec![ProxyMode::Nftables],
            cni_later: true,
        };
        let set = ClusterSet::CNIS;
        let clusters = OwnClusters::start(set, programs, &plan, world.keep)?;
        let file = |variable: &str| {
            let path = env::var_os(variable).map(PathBuf::from);
            path.with_context(|| format!("{variable} is not set: run `cargo xtask test cni`"))
        };
        let (agent, traffic) = (file(IMAGE)?, file(PROGRAM)?);
        let archive = set.directory().join("traffic.tar");
        cluster::write_traffic(&traffic, &archive)?;
        let [first, second] = [1, 2].map(|number| Cluster { set, number });
        for node in cluster::nodes(first).chain(cluster::nodes(second)) {
            cluster::import(programs, node, &archive)?;
            cluster::import(programs, node, &agent)?;
        }
        let directory = world.directory.path();
        let member = |cluster: Cluster| {
            Member::begin(programs, &cluster.kubeconfig(), directory, TRAFFIC, Some(&traffic))
        };
        let (importer, exporter) = (member(first)?, member(second)?);
        let image = format!("--image={TRAFFIC}");
        let of_image = [&*image, "--image-pull-policy=IfNotPresent", "--", "sleep"];
        importer.run(&[&["run", BY_PACKETS][..], &of_image].concat())?;
        let release = Release::new(programs, &[])?;
        if order == Order::AgentFirst {
            release.install(&importer, &[])?;
        }
        for node in cluster::nodes(first) {
            setting.apply(node)?;
            node.install_cni(setting.cni)?;
        }
        for member in [&importer, &exporter] {
            member.wait()?;
        }
        let mut stage = Self {
            setting,
            order: Order::AgentFirst,
            importer,
            exporter,
            release,
            before: None,
            programs: programs.clone(),
            proxyless: None,
            _clusters: clusters,
        };
        stage.replace_proxy()?;
        Ok(stage)
    }

    /// The CNI's daemons start again with other options, beside agents that run.
    fn with_setting(mut self, setting: Setting) -> Result<Self> {
        if self.setting == setting {
            return Ok(self);
        }
        self.install_agents()?;
        self.setting = setting;
        self.order = Order::AgentFirst;
        self.before = None;
        for node in self.importer.nodes() {
            setting.apply(node)?;
            node.start_cilium()?;
        }
        self.replace_proxy()?;
        Ok(self)
    }

    /// Ends kube-proxy where the CNI has its place.
    fn replace_proxy(&mut self) -> Result {
        if self.setting.replaces_proxy && self.proxyless.is_none() {
            self.proxyless = Some(Proxyless::stop(&self.programs, &self.importer.nodes())?);
        }
        Ok(())
    }

    /// The agents come after the CNI, if they are to.
    fn with_order(mut self, order: Order) -> Result<Self> {
        if order == Order::CniFirst && self.order == Order::AgentFirst {
            self.release.remove(&self.importer)?;
            self.before = Some(Snapshot::take(&self)?);
            self.order = order;
        }
        self.install_agents()?;
        Ok(self)
    }

    /// The agents are there, if they are not yet.
    fn install_agents(&self) -> Result {
        if !self.release.is_installed(&self.importer)? {
            self.release.install(&self.importer, &[])?;
        }
        Ok(())
    }

    /// Both clusters.
    pub(crate) const fn members(&self) -> [&Member; 2] {
        [&self.importer, &self.exporter]
    }

    /// A service with pods of every node behind it.
    pub(crate) fn imported(&self, name: &str) -> Result<Target> {
        let vips = vec![[10, 253, 77, 1].into(), [0xfdfd, 0x77, 0, 0, 0, 0, 0, 1].into()];
        let target = Target { name: name.to_owned(), vips };
        target.publish(&self.importer, &self.members())?;
        Ok(target)
    }

    /// How many packets the uplinks of all nodes have dropped.
    pub(crate) fn leaks_prevented(&self) -> Result<u64> {
        let statuses = agents::statuses(&self.importer)?;
        let of = |status: &Value| status["counters"]["leak_prevented"].as_u64();
        Ok(statuses.iter().filter_map(of).sum())
    }

    /// Starts the CNI's daemons again, or lets it connect pods that come and go if it has none.
    pub(crate) fn replace_cni(&self) -> Result {
        if self.setting.cni == Cni::Cilium {
            return self.importer.nodes().into_iter().try_for_each(Node::start_cilium);
        }
        let image = format!("--image={TRAFFIC}");
        let create =
            ["create", "deployment", CHURN, &image, "--replicas=4", "--", "/traffic", "sleep"];
        self.importer.run(&create)?;
        let rollout = ["rollout", "status", "deployment", CHURN, "--timeout=90s"];
        self.importer.run(&rollout)?;
        self.importer.run(&["delete", "deployment", CHURN])?;
        let gone = ["wait", "--for=delete", "pod", "--selector=app=churn", "--timeout=90s"];
        self.importer.run(&gone).map(drop)
    }
}
