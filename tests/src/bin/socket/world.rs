//! What the cases share: a node with two pods, remote pods behind it, and an agent.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::ensure;
pub(crate) use mcs_tests::target::{DEAF, REMOTE, TCP, Target, UDP, UNKNOWN_PORT};
use mcs_tests::{
    cgroup::Visit,
    manifests::{Protocol, Service},
    netns::Namespace,
    run::Run,
    server::{Serve, Server},
    site::Site,
    target::Vips,
    topology::{Subnet, network::Network},
};

use crate::client::Family;

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
    /// The agent that most cases use. It runs in the node's namespace.
    pub(crate) site: Site,
    /// A service with the first three remote pods.
    pub(crate) web: Target,
    /// A service without usable endpoints.
    pub(crate) empty: Target,
    other_pod: Namespace,
    pub(crate) network: Network,
    pub(crate) run: Run,
    vips: Vips,
}

impl World {
    /// The endpoints of `web`.
    pub(crate) const WEB: &[u8] = &[11, 12, 13];

    /// Creates everything.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let serve: [Serve; 3] =
            [(Server::tcp, TCP.1), (Server::http, HTTP.1), (Server::udp, UDP.1)];
        let network = Network::create(&run, &PODS, &serve)?;
        let other_pod = network.node.link(&run, "other", OTHER_POD, &[2])?;
        let vips = Vips::default();
        let web = fresh(&vips, "web").with(Self::WEB);
        let empty = fresh(&vips, "empty").with(&[]);
        let services = [&web.service, &empty.service];
        let site = Site::start(&run, "main", &network.node.netns, &[], &services)?;
        let visit = site.cgroup.visit()?;
        Ok(Self { _in_cgroup: visit, site, web, empty, other_pod, network, run, vips })
    }

    /// Another agent on the node, which knows these services.
    pub(crate) fn start(
        &self,
        role: &str,
        flags: &[&str],
        services: &[&Service],
    ) -> anyhow::Result<Site> {
        Site::start(&self.run, role, &self.network.node.netns, flags, services)
    }

    /// Removes an agent with its programs on devices. Without tcx these outlive it, and refuse direct connects from client ports
    /// of its flows.
    pub(crate) fn end(mut site: Site) -> anyhow::Result<()> {
        site.agent.stop()?;
        let output = site.agent.cleanup()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    }

    /// A namespace of clients.
    pub(crate) fn netns(&self, place: Place) -> &Namespace {
        match place {
            Place::Pod => &self.network.pod,
            Place::OtherPod => &self.other_pod,
            Place::Node => &self.network.node.netns,
        }
    }

    /// Whether a pod sends packets to the addresses of a service to the node.
    pub(crate) fn route(&self, target: &Target, place: Place, verb: &str) -> anyhow::Result<()> {
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
        client: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        self.netns(place).run(client)?
    }

    /// A service with its own addresses, no endpoints, and no agent that knows it.
    pub(crate) fn fresh(&self, name: &str) -> Target {
        fresh(&self.vips, name)
    }

    /// The server of a remote pod.
    pub(crate) fn server(
        &self,
        protocol: Protocol,
        address: SocketAddr,
    ) -> anyhow::Result<&Server> {
        self.network.servers.at(protocol, address)
    }
}

fn fresh(vips: &Vips, name: &str) -> Target {
    let target = vips.target(name).port(Protocol::Tcp, HTTP);
    target.port(Protocol::Tcp, DEAF).port(Protocol::Udp, DEAF)
}
