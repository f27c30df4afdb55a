//! What the cases share: a node with a pod, remote pods behind it, and two API servers.

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
use mcs_tests::{
    agent::Source,
    api_server::{ApiServer, ControlPlane},
    client::Family,
    cluster::CLUSTER_PROPERTIES,
    manifests::{Protocol, Service},
    netns::Namespace,
    run::Run,
    server::Server,
    topology::{Node, Subnet},
    traffic::Load,
};
use serde_json::Value;

use crate::site::Site;

/// The port of a service's TCP frontend, and of its backends.
const TCP: (u16, u16) = (80, 8080);
/// The port of a service's UDP frontend, and of its backends.
const UDP: (u16, u16) = (53, 5353);

/// The remote pods, as host numbers.
const PODS: [u8; 4] = [11, 12, 13, 14];

/// No remote pod is this one.
pub(crate) const NO_POD: u8 = 99;

const POD: Subnet = Subnet(1);
const CONTROL: Subnet = Subnet(5);
const REMOTE: Subnet = Subnet(9);

/// A service with an address of each family.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) service: Service,
    v4: IpAddr,
    v6: IpAddr,
}

impl Target {
    /// The same with these remote pods as its endpoints.
    pub(crate) fn with(mut self, pods: &[u8]) -> Self {
        let ips = pods.iter().flat_map(|pod| REMOTE.both(*pod));
        self.service = self.service.endpoints("remote", ips);
        self
    }

    /// Its import and its slices, in this order.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let mut objects = vec![self.service.import()];
        objects.extend(self.service.slices());
        objects
    }

    /// Its TCP frontend of IPv4.
    pub(crate) const fn tcp(&self) -> SocketAddr {
        SocketAddr::new(self.v4, TCP.0)
    }

    /// Its UDP frontend of IPv4.
    pub(crate) const fn udp(&self) -> SocketAddr {
        SocketAddr::new(self.v4, UDP.0)
    }

    /// Clients of it, and the remote pods that may answer.
    pub(crate) fn load(&self, pods: &[u8]) -> Load {
        let families = |port| {
            vec![
                (Family::V4, SocketAddr::new(self.v4, port)),
                (Family::V6, SocketAddr::new(self.v6, port)),
            ]
        };
        let ips = pods.iter().flat_map(|pod| REMOTE.both(*pod));
        let backends =
            ips.flat_map(|ip| [TCP.1, UDP.1].map(|port| SocketAddr::new(ip, port))).collect();
        Load { tcp: families(TCP.0), udp: families(UDP.0), backends }
    }
}

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
    _servers: Vec<Server>,
    pub(crate) pod: Namespace,
    _remote: Namespace,
    pub(crate) node: Node,
    pub(crate) run: Run,
    numbers: Cell<u8>,
}

impl World {
    /// Creates everything. Returns the directory of the logs too.
    pub(crate) fn begin() -> anyhow::Result<(Self, PathBuf)> {
        let run =
            Run::begin("mcs-api").context("cannot make a cgroup to run in (it takes root)")?;
        let node = Node::create(&run)?;
        let pod = node.link(&run, "pod", POD, &[2])?;
        let remote = node.link(&run, "remote", REMOTE, &PODS)?;
        let servers = serve(&remote)?;
        let (control, east, west) = start_servers(&run, &node)?;
        grant(&run, &west, "west")?;
        let kubeconfig = grant(&run, &east, "east")?;
        let mut site = Site::start(&run, "main", &node.netns, Source::Kubeconfig(kubeconfig), &[])?;
        site.wait_until_healthy()?;
        let logs = run.directory().to_owned();
        let world = Self {
            east,
            west,
            control,
            site,
            _servers: servers,
            pod,
            _remote: remote,
            node,
            run,
            numbers: Cell::new(1),
        };
        Ok((world, logs))
    }

    /// A service with its own addresses and no endpoints.
    pub(crate) fn fresh(&self, name: &str) -> Target {
        let number = self.numbers.replace(self.numbers.get() + 1);
        let v4 = IpAddr::from([10, 78, 0, number]);
        let v6 = IpAddr::from([0xfd78, 0, 0, 0, 0, 0, 1, u16::from(number)]);
        let service = Service::new(name, [v4, v6]).port(Protocol::Tcp, TCP.0, TCP.1).port(
            Protocol::Udp,
            UDP.0,
            UDP.1,
        );
        Target { service, v4, v6 }
    }

    /// The kubeconfig of the agents of an API server.
    pub(crate) fn kubeconfig(&self, cluster: &str) -> PathBuf {
        kubeconfig(&self.run, cluster)
    }

    /// The file with the token of the agents of an API server.
    pub(crate) fn token_file(&self, cluster: &str) -> PathBuf {
        token_file(&self.run, cluster)
    }

    /// Starts another agent, without waiting for it. It follows `east`.
    pub(crate) fn start(&self, role: &str, flags: &[&str]) -> anyhow::Result<Site> {
        self.start_on(role, Source::Kubeconfig(self.kubeconfig("east")), flags)
    }

    /// The same, and it reads there.
    pub(crate) fn start_on(
        &self,
        role: &str,
        source: Source,
        flags: &[&str],
    ) -> anyhow::Result<Site> {
        Site::start(&self.run, role, &self.node.netns, source, flags)
    }
}

fn start_servers(run: &Run, node: &Node) -> anyhow::Result<(ControlPlane, ApiServer, ApiServer)> {
    let netns = node.link(run, "control", CONTROL, &[2])?;
    let control = ControlPlane::start(run, netns, CONTROL.v4(2))?;
    let east = control.api_server("east", 6443, &[])?;
    let west = control.api_server("west", 6444, &["--feature-gates=WatchList=false"])?;
    control.install_types(&east)?;
    for server in [&east, &west] {
        server.api.apply_yaml(CLUSTER_PROPERTIES)?;
    }
    Ok((control, east, west))
}

fn kubeconfig(run: &Run, cluster: &str) -> PathBuf {
    run.directory().join(format!("{cluster}.kubeconfig"))
}

fn token_file(run: &Run, cluster: &str) -> PathBuf {
    run.directory().join(format!("{cluster}.token"))
}

/// Gives agents the rights that are shipped, and a kubeconfig.
fn grant(run: &Run, server: &ApiServer, cluster: &str) -> anyhow::Result<PathBuf> {
    let kubeconfig = kubeconfig(run, cluster);
    server.grant_agents(&kubeconfig, &token_file(run, cluster))?;
    Ok(kubeconfig)
}

fn serve(remote: &Namespace) -> anyhow::Result<Vec<Server>> {
    let ips = PODS.iter().flat_map(|pod| REMOTE.both(*pod));
    let servers = ips.flat_map(|ip| {
        [
            Server::tcp_echo(remote, SocketAddr::new(ip, TCP.1)),
            Server::udp(remote, SocketAddr::new(ip, UDP.1)),
        ]
    });
    servers.collect()
}
