//! What the cases share: a node with a pod, remote pods behind it, and two API servers.

use std::ops::{Deref, DerefMut};

use mcs_tests::{
    api_server::{ApiServer, ControlPlane},
    cluster::CLUSTER_PROPERTIES,
    server::Serve,
    target::REMOTE,
    world,
};

use crate::prelude::*;

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
    /// Has the types of the Multi-Cluster Services API and the shipped rights. The world's agent follows it.
    pub(crate) east: ApiServer,
    /// Has the shipped rights alone, and streams no lists.
    pub(crate) west: ApiServer,
    pub(crate) control: ControlPlane,
    pub(crate) base: world::World<Site>,
}

impl Deref for World {
    type Target = world::World<Site>;

    fn deref(&self) -> &Self::Target {
        &self.base
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.base
    }
}

impl World {
    /// Creates everything.
    pub(crate) fn begin(run: Run) -> Result<Self> {
        let serve: [Serve; 2] = [(Server::tcp_echo, TCP.1), (Server::udp, UDP.1)];
        let world = world::World::of(run).pods(&PODS).serving(&serve).build()?;
        let control = ControlPlane::linked(&world.run, &world.network.node)?;
        let east = control.member("east", 6443, &[])?;
        let west = control.api_server("west", 6444, &["--feature-gates=WatchList=false"])?;
        west.api.apply_yaml(CLUSTER_PROPERTIES)?;
        [&east, &west].into_iter().try_for_each(ApiServer::grant_agents)?;
        let mut site = world.agent("main").follows(Source::Kubeconfig(east.agents_kubeconfig()))?;
        site.wait_until_healthy()?;
        Ok(Self { east, west, control, base: world.with(site) })
    }

    /// Starts another agent, without waiting for it. It follows `east`.
    pub(crate) fn start(&self, role: &str, flags: &[&str]) -> Result<Site> {
        self.start_on(role, Source::Kubeconfig(self.east.agents_kubeconfig()), flags)
    }

    /// The same, and it reads there.
    pub(crate) fn start_on(&self, role: &str, source: Source, flags: &[&str]) -> Result<Site> {
        self.agent(role).flags(flags).follows(source)
    }
}
