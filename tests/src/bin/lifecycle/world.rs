//! What the cases share: a node with a pod, and remote pods behind it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
pub(crate) use mcs_tests::target::{TCP, Target, UDP};
use mcs_tests::{
    client::Family,
    netns::Namespace,
    run::Run,
    server::Server,
    site::Site,
    target::{REMOTE, Vips},
    topology::{Node, Subnet},
};

/// The remote pods, as host numbers, by two.
pub(crate) const SETS: [&[u8]; 2] = [&[11, 12], &[13, 14]];

const POD: Subnet = Subnet(1);

/// The pod.
pub(crate) const POD_ADDRESS: IpAddr = IpAddr::V4(POD.v4(2));
/// One of the remote pods.
pub(crate) const REMOTE_ADDRESS: IpAddr = IpAddr::V4(REMOTE.v4(11));

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
    vips: Vips,
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
        let vips = Vips::default();
        Ok((Self { _servers: servers, pod, _remote: remote, node, run, vips }, logs))
    }

    /// A service with its own addresses and the first set of remote pods.
    pub(crate) fn target(&self, name: &str) -> Target {
        self.vips.target(name).with(SETS[0])
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
