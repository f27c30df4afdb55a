//! What the cases share: a node with a pod, and remote pods behind it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicU8, Ordering},
};

use anyhow::Context as _;
use mcs_tests::{
    client::Family,
    manifests::{Aside, Protocol, Service},
    netns::Namespace,
    run::Run,
    server::Server,
    site::Site,
    topology::{Node, Subnet},
};

/// The port of a service's TCP frontend, and of its backends.
pub(crate) const TCP: (u16, u16) = (80, 8080);
/// The port of a service's UDP frontend, and of its backends.
pub(crate) const UDP: (u16, u16) = (53, 5353);

/// The remote pods, as host numbers, by two.
pub(crate) const SETS: [&[u8]; 2] = [&[11, 12], &[13, 14]];

const POD: Subnet = Subnet(1);
const REMOTE: Subnet = Subnet(9);

/// The pod.
pub(crate) const POD_ADDRESS: IpAddr = IpAddr::V4(POD.v4(2));
/// One of the remote pods.
pub(crate) const REMOTE_ADDRESS: IpAddr = IpAddr::V4(REMOTE.v4(11));

/// A service with an address of each family.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) service: Service,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Target {
    /// Its frontend of a protocol.
    pub(crate) fn at(&self, family: Family, protocol: Protocol) -> SocketAddr {
        let port = match protocol {
            Protocol::Tcp => TCP.0,
            Protocol::Udp => UDP.0,
        };
        family.address(self.v4, self.v6, port)
    }

    /// The same with these remote pods as its endpoints.
    pub(crate) fn with(mut self, pods: &[u8]) -> Self {
        let ips = pods.iter().flat_map(|pod| REMOTE.both(*pod));
        self.service = self.service.endpoints("remote", ips);
        self
    }

    /// The same, with some of the pods kept from new clients.
    pub(crate) fn aside(mut self, why: Aside, pods: &[u8]) -> Self {
        self.service = self.service.aside(why, pods.iter().flat_map(|pod| REMOTE.both(*pod)));
        self
    }
}

/// Where these remote pods answer.
pub(crate) fn backends(pods: &[u8]) -> BTreeSet<SocketAddr> {
    let ips = pods.iter().flat_map(|pod| REMOTE.both(*pod));
    ips.flat_map(|ip| [TCP.1, UDP.1].map(|port| SocketAddr::new(ip, port))).collect()
}

/// A separate node, with a pod and remote pods like those of the [`World`].
pub(crate) struct Network {
    _servers: Vec<Server>,
    pub(crate) pod: Namespace,
    /// The pod's device on the node.
    pub(crate) device: String,
    remote: Namespace,
    pub(crate) node: Node,
}

impl Network {
    pub(crate) fn create(run: &Run, role: &str) -> anyhow::Result<Self> {
        let node = Node::named(run, role)?;
        let pod = node.link(run, &format!("{role}-pod"), POD, &[2])?;
        let remote = node.link(run, &format!("{role}-remote"), REMOTE, &SETS.concat())?;
        let device = format!("{role}-pod");
        Ok(Self { _servers: serve(&remote)?, pod, device, remote, node })
    }

    /// The node, as the pod sees it.
    pub(crate) fn gateway(family: Family) -> IpAddr {
        family.address(POD.v4(1), POD.v6(1), 0).ip()
    }

    /// All its namespaces.
    pub(crate) fn namespaces(&self) -> [&Namespace; 3] {
        [&self.node.netns, &self.pod, &self.remote]
    }
}

/// Makes the remote pods answer.
fn serve(remote: &Namespace) -> anyhow::Result<Vec<Server>> {
    let mut servers = Vec::new();
    for ip in SETS.concat().iter().flat_map(|pod| REMOTE.both(*pod)) {
        servers.push(Server::tcp_echo(remote, SocketAddr::new(ip, TCP.1))?);
        servers.push(Server::udp(remote, SocketAddr::new(ip, UDP.1))?);
    }
    Ok(servers)
}

// They have to be removed in this order.
pub(crate) struct World {
    _servers: Vec<Server>,
    pub(crate) pod: Namespace,
    _remote: Namespace,
    pub(crate) node: Node,
    pub(crate) run: Run,
    vips: AtomicU8,
}

impl World {
    /// Creates everything. Returns the directory of the logs too.
    pub(crate) fn begin() -> anyhow::Result<(Self, PathBuf)> {
        let run =
            Run::begin("mcs-life").context("cannot make a cgroup to run in (it takes root)")?;
        let node = Node::create(&run)?;
        let pod = node.link(&run, "pod", POD, &[2])?;
        let remote = node.link(&run, "remote", REMOTE, &SETS.concat())?;
        let servers = serve(&remote)?;
        let logs = run.directory().to_owned();
        let vips = AtomicU8::new(1);
        Ok((Self { _servers: servers, pod, _remote: remote, node, run, vips }, logs))
    }

    /// A service with its own addresses and the first set of remote pods.
    pub(crate) fn target(&self, name: &str) -> Target {
        let number = self.vips.fetch_add(1, Ordering::Relaxed);
        let v4 = Ipv4Addr::new(10, 78, 1, number);
        let v6 = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 2, number.into());
        let service = Service::new(name, [IpAddr::from(v4), v6.into()])
            .port(Protocol::Tcp, TCP.0, TCP.1)
            .port(Protocol::Udp, UDP.0, UDP.1);
        Target { service, v4, v6 }.with(SETS[0])
    }

    /// Another pod of the node. `number` is that of its subnet.
    pub(crate) fn another_pod(&self, role: &str, number: u8) -> anyhow::Result<Namespace> {
        self.node.link(&self.run, role, Subnet(number), &[2])
    }

    /// An agent that knows the service.
    pub(crate) fn site(&self, role: &str, flags: &[&str], target: &Target) -> anyhow::Result<Site> {
        Site::start(&self.run, role, &self.node.netns, flags, &[&target.service])
    }
}
