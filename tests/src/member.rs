//! A cluster as a member of a ClusterSet: an API server, and nodes that kube-proxy serves, with the agent or without.

mod node;
mod service;

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

pub use self::{
    node::{Place, ProxiedNode},
    service::{DerivedService, TCP, UDP},
};
use crate::{
    api_server::{ApiServer, ControlPlane, TOKEN},
    cluster::CLUSTER_PROPERTIES,
    netns::Namespace,
    run::Run,
};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 250, 1);
const PORT: u16 = 6443;
/// The ranges of ClusterIPs.
const SERVICES: &str = "10.96.0.0/16,fd96::/112";

/// The API server, with the types of the Multi-Cluster Services API. It goes when this is dropped.
pub struct Member {
    /// Asks it as the administrator.
    pub server: ApiServer,
    control: ControlPlane,
    kubeconfig: PathBuf,
}

impl Member {
    /// Its id in the ClusterSet.
    pub const CLUSTER: &'static str = "here";

    /// Starts etcd and the API server, and waits until that is ready.
    pub fn start(run: &Run) -> anyhow::Result<Self> {
        let netns = Namespace::create(run, "control")?;
        netns.ip(&format!("address add {ADDRESS}/32 dev lo\n"))?;
        let control = ControlPlane::start(run, netns, ADDRESS)?;
        // The last flag of a name counts.
        let range = format!("--service-cluster-ip-range={SERVICES}");
        let server = control.api_server("member", PORT, &[&range])?;
        control.install_types(&server)?;
        server.api.apply_yaml(CLUSTER_PROPERTIES)?;
        let [kubeconfig, token] = ["kubeconfig", "token"].map(|name| run.directory().join(name));
        fs::write(&token, TOKEN)?;
        server.write_kubeconfig(&kubeconfig, &token)?;
        Ok(Self { server, control, kubeconfig })
    }

    /// The kubeconfig of kube-proxies and agents, who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    fn netns(&self) -> &Namespace {
        self.control.netns()
    }
}
