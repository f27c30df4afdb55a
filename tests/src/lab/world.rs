//! What the cases of a suite share, built part by part: a run, a network of one node, an agent, and services with addresses of their
//! own. A suite adds what is particular to it.
//!
//! ```text
//! let world = World::of(run).pods(&[11, 12]).serving(&[(Server::tcp, 8080)]).build()?;
//! let world = world.with_agent(&["--tc=auto"], &[&web])?;
//! let other = world.agent("other").flags(&["--tc=off"]).knows(&[&world.target("own").service])?;
//! ```

use std::sync::atomic::AtomicU8;

use crate::{
    cgroup::Visit,
    cluster::ProxyMode,
    member::{DerivedService, Member, ProxiedNode},
    prelude::*,
    server::{Serve, Servers},
    target::Vips,
    topology::{
        backbone::{Backbone, Distance},
        place::Place,
        pod::Layout,
    },
};

/// A node with a pod and remote pods behind it; as `A`, the agent that most cases use.
// They have to be removed in this order.
pub struct World<A = ()> {
    /// That agent. It runs in the node's namespace.
    pub site: A,
    /// More pods of the node.
    pub others: Vec<Namespace>,
    /// The namespaces.
    pub network: Network,
    /// Owns everything.
    pub run: Run,
    parts: Parts,
    vips: Vips,
}

/// What a world is to consist of.
#[must_use]
pub struct Builder {
    run: Run,
    parts: Parts,
    others: Vec<(&'static str, Subnet)>,
}

struct Parts {
    pods: Vec<u8>,
    serve: Vec<Serve>,
    ports: Vec<(Protocol, (u16, u16))>,
    /// Endpoints of services of [`World::target`].
    endpoints: Vec<u8>,
}

impl Parts {
    fn fresh(&self, vips: &Vips, name: &str) -> Target {
        let ports = self.ports.iter();
        ports.fold(vips.target(name), |target, (protocol, port)| target.port(*protocol, *port))
    }
}

impl Builder {
    /// These remote pods, as hosts of [`REMOTE`](crate::target::REMOTE). They are the endpoints of [`World::target`].
    pub fn pods(mut self, pods: &[u8]) -> Self {
        self.parts.pods = pods.to_vec();
        self.parts.endpoints = pods.to_vec();
        self
    }

    /// Some of them alone are the endpoints of [`World::target`].
    pub fn endpoints(mut self, pods: &[u8]) -> Self {
        self.parts.endpoints = pods.to_vec();
        self
    }

    /// What each remote pod serves.
    pub fn serving(mut self, serve: &[Serve]) -> Self {
        self.parts.serve = serve.to_vec();
        self
    }

    /// Ports of every service, beside [`TCP`] and [`UDP`].
    pub fn ports(mut self, ports: &[(Protocol, (u16, u16))]) -> Self {
        self.parts.ports = ports.to_vec();
        self
    }

    /// One more pod of the node.
    pub fn pod(mut self, role: &'static str, subnet: Subnet) -> Self {
        self.others.push((role, subnet));
        self
    }

    /// Makes a backbone with remote pods at both distances, and a node of it with these pods. All have the same servers.
    pub fn nodes(self, pods: &[(Layout, u8)]) -> Result<Nodes> {
        let Self { run, parts, .. } = self;
        let backbone = Backbone::create(&run)?;
        let mut servers = Servers::default();
        for distance in Distance::ALL {
            let ips = Backbone::PODS.into_iter().flat_map(|pod| distance.pod(pod));
            servers.add(backbone.pods(distance), ips, &parts.serve)?;
        }
        let place = Place::create(&run, &backbone, 0, pods, &parts.serve)?;
        let (vips, count) = (Vips::default(), AtomicU8::new(1));
        Ok(Nodes { servers, place, backbone, run, parts, vips, count })
    }

    /// Makes a cluster whose nodes kube-proxy serves, without any node.
    pub fn cluster(self) -> Result<Cluster> {
        Ok(Cluster { member: Member::start(&self.run)?, run: self.run, count: AtomicU8::new(1) })
    }

    /// Makes everything but agents.
    pub fn build(self) -> Result<World> {
        let Self { run, parts, others } = self;
        let network = Network::create(&run, &parts.pods, &parts.serve)?;
        let link = |(role, subnet)| network.node.link(&run, role, subnet, &[2]);
        let others = others.into_iter().map(link).collect::<Result<_>>()?;
        Ok(World { site: (), others, network, run, parts, vips: Vips::default() })
    }
}

impl World {
    /// The world of a run.
    pub const fn of(run: Run) -> Builder {
        let parts =
            Parts { pods: Vec::new(), serve: Vec::new(), ports: Vec::new(), endpoints: Vec::new() };
        Builder { run, parts, others: Vec::new() }
    }

    /// The same with an agent of the node that knows these services.
    pub fn with_agent(self, flags: &[&str], services: &[&Service]) -> Result<World<Site>> {
        let site = self.start("main", flags, services)?;
        Ok(self.with(site))
    }

    /// The same with this agent.
    pub fn with<A>(self, site: A) -> World<A> {
        let Self { others, network, run, parts, vips, .. } = self;
        World { site, others, network, run, parts, vips }
    }
}

impl<A> World<A> {
    /// A service with its own addresses, no endpoints, and no agent that knows it.
    pub fn fresh(&self, name: &str) -> Target {
        self.parts.fresh(&self.vips, name)
    }

    /// The same with endpoints.
    pub fn target(&self, name: &str) -> Target {
        self.fresh(name).with(&self.parts.endpoints)
    }

    /// An agent to start on the node.
    pub const fn agent<'a>(&'a self, role: &'a str) -> Launch<'a> {
        Launch::new(&self.run, role, &self.network.node.netns)
    }

    /// Starts an agent on the node that knows these services.
    pub fn start(&self, role: &str, flags: &[&str], services: &[&Service]) -> Result<Site> {
        self.agent(role).flags(flags).knows(services)
    }

    /// A service with endpoints, an agent on the node that knows it, and a visit to the agent's cgroup.
    pub fn stage(&self, role: &str, flags: &[&str]) -> Result<(Target, Site, Visit)> {
        let target = self.target(role);
        let site = self.start(role, flags, &[&target.service])?;
        let visit = site.cgroup.visit()?;
        Ok((target, site, visit))
    }

    /// Another network like that of the world.
    pub fn another(&self, role: &str) -> Result<Network> {
        Network::named(&self.run, &format!("{role}-"), &self.parts.pods, &self.parts.serve)
    }

    /// Another pod of the node.
    pub fn another_pod(&self, role: &str, subnet: Subnet) -> Result<Namespace> {
        self.network.node.link(&self.run, role, subnet, &[2])
    }

    /// The server of a remote pod.
    pub fn server(&self, protocol: Protocol, address: SocketAddr) -> Result<&Server> {
        self.network.servers.at(protocol, address)
    }
}

/// Nodes on a [backbone](crate::topology::backbone).
// They have to be removed in this order.
pub struct Nodes {
    servers: Servers,
    /// The first node.
    pub place: Place,
    /// The routers, and remote pods.
    pub backbone: Backbone,
    /// Owns everything.
    pub run: Run,
    parts: Parts,
    vips: Vips,
    count: AtomicU8,
}

impl Nodes {
    /// A service with its own addresses, no endpoints, and no agent that knows it.
    pub fn fresh(&self, name: &str) -> Target {
        self.parts.fresh(&self.vips, name)
    }

    /// Another node, with this number of pods of these layouts, and no agent.
    pub fn new_place(&self, pods: &[(Layout, u8)]) -> Result<Place> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        Place::create(&self.run, &self.backbone, number, pods, &self.parts.serve)
    }

    /// The server at an address of a remote pod, or of a pod of the first node.
    pub fn server(&self, protocol: Protocol, address: SocketAddr) -> Result<&Server> {
        self.servers.at(protocol, address).or_else(|_| self.place.servers.at(protocol, address))
    }
}

/// A cluster whose nodes kube-proxy serves.
// They have to be removed in this order.
pub struct Cluster {
    /// Its API server.
    pub member: Member,
    run: Run,
    count: AtomicU8,
}

impl Cluster {
    /// One more node, with kube-proxy in this mode. `flags` are those of its agent, which is not there yet.
    pub fn node(&self, mode: ProxyMode, flags: &[&str]) -> Result<ProxiedNode> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        ProxiedNode::create(&self.run, &self.member, number, mode, flags)
    }

    /// Makes a service with its slices.
    pub fn apply(&self, service: &DerivedService) -> Result {
        self.member.server.api.apply(&service.derived())?;
        self.member.server.api.apply_all(&service.slices())
    }
}
