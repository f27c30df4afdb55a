//! The two clusters: the two that the command line names, or two of the suite's own.

use std::env;

use mcs_tests::cluster::{Cluster, ClusterSet, Cni, Kubernetes, OwnClusters, Plan, ProxyMode};
use tempfile::TempDir;

use crate::prelude::*;

/// The variable with the path of the program of clients and servers, which is built static.
const TRAFFIC: &str = "MCS_TRAFFIC";
/// The variable with the path of the agent's image, as an archive.
const IMAGE: &str = "MCS_IMAGE";

/// What starting them takes, and removing them.
pub(crate) struct Clusters {
    pub(crate) programs: Programs,
    /// The kubeconfigs.
    pub(crate) kubeconfigs: [PathBuf; 2],
    /// The program of clients, where it is to run on nodes of this machine.
    pub(crate) traffic: Option<PathBuf>,
    /// A directory that goes with this.
    pub(crate) directory: PathBuf,
    _temporary: Option<TempDir>,
    own: Option<OwnClusters>,
}

impl Clusters {
    /// Starts two, or takes those of the kubeconfigs. Nodes of this machine get the images.
    pub(crate) fn begin(kubeconfigs: &[PathBuf], keep: bool) -> Result<Self> {
        let programs = Programs::from_env();
        let (kubeconfigs, own) = match kubeconfigs {
            [] => {
                let own = OwnClusters::start(ClusterSet::TESTS, &programs, &plan(), keep)?;
                let [a, b] = [1, 2].map(|number| Cluster { set: ClusterSet::TESTS, number });
                ([a, b].map(Cluster::kubeconfig), Some(own))
            }
            [a, b] => ([a.clone(), b.clone()], None),
            _ => bail!("the suite takes two kubeconfigs, or none"),
        };
        let (directory, temporary) = if own.is_some() {
            // It goes with the clusters, however this process ends.
            let directory = ClusterSet::TESTS.directory().join("suite");
            fs::create_dir(&directory)?;
            (directory, None)
        } else {
            let temporary = tempfile::Builder::new().prefix("mcs-e2e-").tempdir()?;
            (temporary.path().to_owned(), Some(temporary))
        };
        let mut clusters =
            Self { programs, kubeconfigs, traffic: None, directory, _temporary: temporary, own };
        clusters.load()?;
        Ok(clusters)
    }

    /// Whether they go with this.
    pub(crate) const fn are_own(&self) -> bool {
        self.own.is_some()
    }

    /// Gives the nodes that are on this machine the images.
    fn load(&mut self) -> Result {
        let local = self.kubeconfigs.iter().filter_map(|file| cluster::of_kubeconfig(file));
        let nodes: Vec<_> = local.flat_map(cluster::nodes).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let file = |variable: &str| {
            let path = env::var_os(variable).map(PathBuf::from);
            path.with_context(|| format!("{variable} is not set: run `cargo xtask test e2e`"))
        };
        let (agent, traffic) = (file(IMAGE)?, file(TRAFFIC)?);
        let archive = self.directory.join("traffic.tar");
        cluster::write_traffic(&traffic, &archive)?;
        for node in nodes {
            cluster::import(&self.programs, node, &archive)?;
            cluster::import(&self.programs, node, &agent)?;
        }
        self.traffic = Some(traffic);
        Ok(())
    }
}

/// Between them the clusters have a bridge with VXLAN between nodes and a route for each pod, both modes of kube-proxy, and the
/// newest and the oldest Kubernetes.
fn plan() -> Plan {
    Plan {
        clusters: 2,
        nodes: vec![2, 1],
        kubernetes: vec![Kubernetes::Newest, Kubernetes::Oldest],
        cni: vec![Cni::Flannel, Cni::Ptp],
        proxy: vec![ProxyMode::Nftables, ProxyMode::Iptables],
        cni_later: false,
    }
}
