//! What the cases share: a node with a pod, remote pods behind it, and two API servers.

use std::net::{IpAddr, SocketAddr};

pub(crate) use mcs_tests::target::Target;
use mcs_tests::{
    agent::Source,
    api_server::{ApiServer, ControlPlane},
    cluster::CLUSTER_PROPERTIES,
    run::Run,
    server::{Serve, Server},
    target::{REMOTE, TCP, UDP, Vips},
    topology::network::Network,
};

use crate::site::Site;

/// The remote pods, as host numbers.
const PODS: [u8; 4] = [11, 12, 13, 14];

/// No remote pod is this one.
pub(crate) const NO_POD: u8 = 99;

/// The IPv4 address of a remote pod.
pub(crate) fn pod_address(pod: u8) -> IpAddr {
    REMOTE.v4(pod).into()
}

/// The addresses of a remote pod.
pub(crate) fn pod_addresses(pod: u8) -> [IpAddr; 2] {
    REMOTE.both(pod)
}

/// Where a remote pod answers TCP over IPv4.
pub(crate) fn backend(pod: u8) -> String {
    SocketAddr::new(pod_address(pod), TCP.1).to_string()
}

// They have to be removed in this order.
pub(crate) struct World {
    /// Has the types of the Multi-Cluster Services API and the shipped rights.
    pub(crate) east: ApiServer,
    /// Has the shipped rights alone, and streams no lists.
    pub(crate) west: ApiServer,
    pub(crate) control: ControlPlane,
    /// Follows `east`. It runs in the node's namespace.
    pub(crate) site: Site,
    pub(crate) network: Network,
    pub(crate) run: Run,
    vips: Vips,
}

impl World {
    /// Creates everything.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let serve: [Serve; 2] = [(Server::tcp_echo, TCP.1), (Server::udp, UDP.1)];
        let network = Network::create(&run, &PODS, &serve)?;
        let control = ControlPlane::linked(&run, &network.node)?;
        let east = control.member("east", 6443, &[])?;
        let west = control.api_server("west", 6444, &["--feature-gates=WatchList=false"])?;
        west.api.apply_yaml(CLUSTER_PROPERTIES)?;
        [&east, &west].into_iter().try_for_each(ApiServer::grant_agents)?;
        let source = Source::Kubeconfig(east.agents_kubeconfig());
        let mut site = Site::start(&run, "main", &network.node.netns, source, &[])?;
        site.wait_until_healthy()?;
        Ok(Self { east, west, control, site, network, run, vips: Vips::default() })
    }

    /// A service with its own addresses and no endpoints.
    pub(crate) fn fresh(&self, name: &str) -> Target {
        self.vips.target(name)
    }

    /// Starts another agent, without waiting for it. It follows `east`.
    pub(crate) fn start(&self, role: &str, flags: &[&str]) -> anyhow::Result<Site> {
        self.start_on(role, Source::Kubeconfig(self.east.agents_kubeconfig()), flags)
    }

    /// The same, and it reads there.
    pub(crate) fn start_on(
        &self,
        role: &str,
        source: Source,
        flags: &[&str],
    ) -> anyhow::Result<Site> {
        Site::start(&self.run, role, &self.network.node.netns, source, flags)
    }
}
