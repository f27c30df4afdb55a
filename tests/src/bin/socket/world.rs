//! What the cases share: a node with two pods, remote pods behind it, and an agent.

use std::{
    env,
    ops::{Deref, DerefMut},
};

use mcs_tests::{cgroup::Visit, target::REMOTE, world};

use crate::prelude::*;

/// A port of a service where its backends have an HTTP server.
pub(crate) const HTTP: (u16, u16) = (81, 8081);

/// The remote pods, as host numbers.
pub(crate) const PODS: [u8; 6] = [11, 12, 13, 14, 15, 16];

/// Where the pod is.
pub(crate) const POD: Subnet = Network::POD;
const OTHER_POD: Subnet = Subnet(2);
/// No route leads to this host of either family.
pub(crate) const fn nowhere(host: u8) -> (Ipv4Addr, Ipv6Addr) {
    (Ipv4Addr::new(10, 79, 0, host), Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, host as u16))
}

/// Where a client runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Pod,
    OtherPod,
    Node,
}

impl Place {
    pub(crate) const CLIENTS: [Self; 2] = [Self::Pod, Self::Node];
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "pod",
            Self::OtherPod => "other pod",
            Self::Node => "node",
        })
    }
}

/// The addresses at which remote pods say who they are.
pub(crate) fn backends(pods: &[u8], family: Family, port: u16) -> Vec<SocketAddr> {
    pods.iter().map(|pod| backend(*pod, family, port)).collect()
}

/// The address at which a remote pod says who it is.
pub(crate) fn backend(pod: u8, family: Family, port: u16) -> SocketAddr {
    identity(REMOTE, pod, family, port)
}

/// The IPv4 address of a remote pod.
pub(crate) const fn pod_v4(pod: u8) -> Ipv4Addr {
    REMOTE.v4(pod)
}

/// The address at which a server for clients of that family says who it is.
pub(crate) fn identity(subnet: Subnet, host: u8, family: Family, port: u16) -> SocketAddr {
    match family {
        Family::V6 => SocketAddr::new(subnet.v6(host).into(), port),
        Family::V4 | Family::Mapped => SocketAddr::new(subnet.v4(host).into(), port),
    }
}

// They have to be removed in this order.
pub(crate) struct World {
    _in_cgroup: Visit,
    /// A service with the first three remote pods.
    pub(crate) web: Target,
    /// A service without usable endpoints.
    pub(crate) empty: Target,
    base: world::World<Site>,
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
    /// The endpoints of `web`.
    pub(crate) const WEB: &[u8] = &[11, 12, 13];

    /// Creates everything.
    pub(crate) fn begin(run: Run) -> Result<Self> {
        let world = world::World::of(run)
            .pods(&PODS)
            .endpoints(Self::WEB)
            .serving(&[(Server::tcp, TCP.1), (Server::http, HTTP.1), (Server::udp, UDP.1)])
            .ports(&[(Protocol::Tcp, HTTP), (Protocol::Tcp, DEAF), (Protocol::Udp, DEAF)])
            .pod("other", OTHER_POD)
            .build()?;
        let (web, empty) = (world.target("web"), world.fresh("empty").with(&[]));
        let world = world.with_agent(&[], &[&web.service, &empty.service])?;
        Ok(Self { _in_cgroup: world.site.cgroup.visit()?, web, empty, base: world })
    }

    /// The same with an agent whose table of connected sockets has two slots.
    pub(crate) fn start_with_two_slots(
        &self,
        role: &str,
        flags: &[&str],
        services: &[&Service],
    ) -> Result<Site> {
        let mut site = self.start(role, flags, services)?;
        Self::give_two_slots(&mut site, flags)?;
        Ok(site)
    }

    /// An agent whose table of connected sockets has two slots takes the place of the one that runs.
    pub(crate) fn give_two_slots(site: &mut Site, flags: &[&str]) -> Result {
        const AGENT: &str = "MCS_AGENT_TWO_SLOTS";
        let Some(agent) = env::var_os(AGENT) else {
            return Err(skip(format!("{AGENT} names no agent: `cargo xtask test` builds it")));
        };
        site.agent.set_binary(Path::new(&agent));
        site.agent.replace(flags)?;
        Ok(())
    }

    /// Removes an agent with its programs on devices. Without tcx these outlive it, and refuse direct connects from client ports
    /// of its flows.
    pub(crate) fn end(mut site: Site) -> Result {
        site.agent.stop()?;
        let output = site.agent.cleanup()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    }

    /// A namespace of clients.
    pub(crate) fn netns(&self, place: Place) -> &Namespace {
        match place {
            Place::Pod => &self.network.pod,
            Place::OtherPod => &self.others[0],
            Place::Node => &self.network.node.netns,
        }
    }

    /// Whether a pod sends packets to the addresses of a service to the node.
    pub(crate) fn route(&self, target: &Target, place: Place, verb: &str) -> Result {
        let subnet = if place == Place::Pod { POD } else { OTHER_POD };
        let (v4, v6) = target.vips();
        self.netns(place).ip(&format!(
            "route {verb} {v4} via {}\nroute {verb} {v6} via {}",
            subnet.v4(1),
            subnet.v6(1)
        ))
    }

    /// Runs a client.
    pub(crate) fn at<T: Send>(
        &self,
        place: Place,
        client: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        self.netns(place).run(client)?
    }
}
