//! What the cases share: a node with two pods, remote pods behind it, and an agent.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
pub(crate) use mcs_tests::target::{DEAF, REMOTE, TCP, Target, UDP, UNKNOWN_PORT};
use mcs_tests::{
    cgroup::Visit,
    manifests::Protocol,
    netns::Namespace,
    run::Run,
    server::Server,
    site::Site,
    target::Vips,
    topology::{Node, Subnet},
};

use crate::client::Family;

/// A port of a service where its backends have an HTTP server.
pub(crate) const HTTP: (u16, u16) = (81, 8081);

/// The remote pods, as host numbers.
pub(crate) const PODS: [u8; 6] = [11, 12, 13, 14, 15, 16];

/// Where the pod is; host 1 is the node.
pub(crate) const POD: Subnet = Subnet(1);
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
    servers: BTreeMap<(Protocol, SocketAddr), Server>,
    pod: Namespace,
    other_pod: Namespace,
    pub(crate) remote: Namespace,
    pub(crate) node: Node,
    pub(crate) run: Run,
    vips: Vips,
}

impl World {
    /// The endpoints of `web`.
    pub(crate) const WEB: &[u8] = &[11, 12, 13];

    /// Creates everything. Returns the directory of the logs too.
    pub(crate) fn begin() -> anyhow::Result<(Self, PathBuf)> {
        let run =
            Run::begin("mcs-socket").context("cannot make a cgroup to run in (it takes root)")?;
        let node = Node::create(&run)?;
        let pod = node.link(&run, "pod", POD, &[2])?;
        let other_pod = node.link(&run, "other", OTHER_POD, &[2])?;
        let remote = node.link(&run, "remote", REMOTE, &PODS)?;
        let servers = serve(&remote)?;
        let vips = Vips::default();
        let web = fresh(&vips, "web").with(Self::WEB);
        let empty = fresh(&vips, "empty").with(&[]);
        let services = [&web.service, &empty.service];
        let site = Site::start(&run, "main", &node.netns, &[], &services)?;
        let visit = site.cgroup.visit()?;
        let logs = run.directory().to_owned();
        let world = Self {
            _in_cgroup: visit,
            site,
            web,
            empty,
            servers,
            pod,
            other_pod,
            remote,
            node,
            run,
            vips,
        };
        Ok((world, logs))
    }

    /// A namespace of clients.
    pub(crate) fn netns(&self, place: Place) -> &Namespace {
        match place {
            Place::Pod => &self.pod,
            Place::OtherPod => &self.other_pod,
            Place::Node => &self.node.netns,
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
        self.servers.get(&(protocol, address)).with_context(|| format!("no server at {address}"))
    }
}

fn fresh(vips: &Vips, name: &str) -> Target {
    let target = vips.target(name).port(Protocol::Tcp, HTTP);
    target.port(Protocol::Tcp, DEAF).port(Protocol::Udp, DEAF)
}

fn serve(remote: &Namespace) -> anyhow::Result<BTreeMap<(Protocol, SocketAddr), Server>> {
    let mut servers = BTreeMap::new();
    for ip in PODS.iter().flat_map(|pod| REMOTE.both(*pod)) {
        let at = |port| SocketAddr::new(ip, port);
        for (protocol, server) in [
            (Protocol::Tcp, Server::tcp(remote, at(TCP.1))?),
            (Protocol::Tcp, Server::http(remote, at(HTTP.1))?),
            (Protocol::Udp, Server::udp(remote, at(UDP.1))?),
        ] {
            servers.insert((protocol, server.address()), server);
        }
    }
    Ok(servers)
}
