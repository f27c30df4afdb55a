//! A cluster as a member of a ClusterSet: an API server, and nodes that kube-proxy serves, with the agent or without.

mod node;
mod service;

use std::path::{Path, PathBuf};

pub use self::{
    node::{Place, ProxiedNode},
    service::DerivedService,
};
use crate::{
    api_server::{ApiServer, ControlPlane},
    run::Run,
};

/// The ranges of ClusterIPs.
const SERVICES: &str = "10.96.0.0/16,fd96::/112";

/// The API server, with the types of the Multi-Cluster Services API. It goes when this is dropped.
pub struct Member {
    /// Asks it as the administrator.
    pub server: ApiServer,
    /// Where the server runs.
    pub control: ControlPlane,
    kubeconfig: PathBuf,
}

impl Member {
    /// Its id in the ClusterSet.
    pub const CLUSTER: &'static str = "here";

    /// Starts etcd and the API server, and waits until that is ready.
    pub fn start(run: &Run) -> anyhow::Result<Self> {
        let control = ControlPlane::alone(run)?;
        // The last flag of a name counts.
        let range = format!("--service-cluster-ip-range={SERVICES}");
        let server = control.member("member", 6443, &[&range])?;
        let kubeconfig = server.administrator()?;
        Ok(Self { server, control, kubeconfig })
    }

    /// The kubeconfig of kube-proxies and agents, who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}
