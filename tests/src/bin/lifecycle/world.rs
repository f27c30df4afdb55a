//! What the cases share: a node with a pod, and remote pods behind it.

use std::net::{IpAddr, SocketAddr};

use mcs_tests::{
    client::{Family, ask, connected, identity, udp},
    netns::Namespace,
    run::Run,
    server::{Serve, Server},
    site::Site,
    target::{REMOTE, Vips},
    topology::Subnet,
};
pub(crate) use mcs_tests::{
    target::{TCP, Target, UDP, backends},
    topology::network::Network,
};

/// The remote pods, as host numbers, by two.
pub(crate) const SETS: [&[u8]; 2] = [&[11, 12], &[13, 14]];

/// The pod.
pub(crate) const POD_ADDRESS: IpAddr = IpAddr::V4(Network::POD.v4(2));
/// One of the remote pods.
pub(crate) const REMOTE_ADDRESS: IpAddr = IpAddr::V4(REMOTE.v4(11));

const SERVE: [Serve; 2] = [(Server::tcp_echo, TCP.1), (Server::udp, UDP.1)];

// They have to be removed in this order.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) run: Run,
    vips: Vips,
}

impl World {
    /// Creates everything.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let network = Network::create(&run, &SETS.concat(), &SERVE)?;
        Ok(Self { network, run, vips: Vips::default() })
    }

    /// Another network like that of the world.
    pub(crate) fn another(&self, role: &str) -> anyhow::Result<Network> {
        Network::named(&self.run, &format!("{role}-"), &SETS.concat(), &SERVE)
    }

    /// A service with its own addresses and the first set of remote pods.
    pub(crate) fn target(&self, name: &str) -> Target {
        self.vips.target(name).with(SETS[0])
    }

    /// Another pod of the node. `number`: its subnet.
    pub(crate) fn another_pod(&self, role: &str, number: u8) -> anyhow::Result<Namespace> {
        self.network.node.link(&self.run, role, Subnet(number), &[2])
    }

    /// An agent that knows the service.
    pub(crate) fn site(&self, role: &str, flags: &[&str], target: &Target) -> anyhow::Result<Site> {
        Site::start(&self.run, role, &self.network.node.netns, flags, &[&target.service])
    }
}

/// Whether a client is in the cgroup of the agent, and so uses the socket path, and its family.
pub(crate) const CLIENTS: [(bool, Family); 4] =
    [(true, Family::V4), (true, Family::V6), (false, Family::V4), (false, Family::V6)];

/// Does it in the pod, for one of the paths.
pub(crate) fn by<T: Send>(
    site: &Site,
    network: &Network,
    sockets: bool,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let _in_cgroup = if sockets { Some(site.cgroup.visit()?) } else { None };
    network.pod.run(work)?
}

/// Lets the pod send packets to the addresses of a service to the node.
pub(crate) fn lead(network: &Network, target: &Target) -> anyhow::Result<()> {
    Family::ON_WIRE.into_iter().try_for_each(|family| {
        let (vip, via) = (target.tcp(family).ip(), Network::gateway(family));
        network.pod.ip(&format!("route replace {vip} via {via}"))
    })
}

/// Who answers a new client, by TCP and by UDP.
pub(crate) fn answers(target: &Target, family: Family) -> anyhow::Result<[SocketAddr; 2]> {
    let tcp = identity(&connected(family, target.tcp(family))?)?;
    Ok([tcp, ask(&udp(family)?, target.udp(family))?.backend])
}
