//! What the cases share: a node with pods of every layout, remote pods beyond its uplink, and an
//! agent without socket hooks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicU8, Ordering},
};

use anyhow::Context as _;
pub(crate) use mcs_tests::target::{DEAF, TCP, Target, UDP, UNKNOWN_PORT};
use mcs_tests::{
    client::Family,
    manifests::Protocol,
    run::Run,
    server::{Serve, Server, Servers},
    site::Site,
    target::Vips,
    topology::{
        Node, Subnet,
        backbone::{Backbone, Distance},
        pod::{Layout, Pod},
    },
};

/// The flags of an agent that serves pods of every layout, by packets alone.
pub(crate) const FLAGS: &[&str] =
    &["--socket-lb=off", "--tc=auto", "--tc-devices=kind=veth,kind=tun"];

/// How programs of the agent are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mechanism {
    Tcx,
    Clsact,
}

impl Mechanism {
    pub(crate) const BOTH: [Self; 2] = [Self::Tcx, Self::Clsact];
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// The addresses at which remote pods say who they are.
pub(crate) fn backends(
    distance: Distance,
    pods: &[u8],
    family: Family,
    port: u16,
) -> BTreeSet<SocketAddr> {
    let ips = pods.iter().flat_map(|pod| distance.pod(*pod));
    let ips = ips.filter(|ip| ip.is_ipv4() == (family == Family::V4));
    ips.map(|ip| SocketAddr::new(ip, port)).collect()
}

/// A node and its pods.
pub(crate) struct Place {
    servers: Servers,
    pods: BTreeMap<Layout, Vec<Pod>>,
    pub(crate) node: Node,
    first: Subnet,
    number: u8,
}

/// The servers of every pod.
const SERVE: [Serve; 2] = [(Server::tcp_echo, TCP.1), (Server::udp_echo, UDP.1)];

impl Place {
    /// Makes the node with this number, and this number of pods of each layout, each with servers.
    fn create(
        run: &Run,
        backbone: &Backbone,
        number: u8,
        pods: &[(Layout, u8)],
    ) -> anyhow::Result<Self> {
        let (node, first) = backbone.node(run, &format!("node-{number}"), number)?;
        let mut place =
            Self { servers: Servers::default(), pods: BTreeMap::new(), node, first, number };
        for (layout, count) in pods {
            for host in 0..*count {
                place.add(run, *layout, first, host + 2)?;
            }
        }
        Ok(place)
    }

    fn add(&mut self, run: &Run, layout: Layout, first: Subnet, host: u8) -> anyhow::Result<()> {
        let pod = Pod::create(run, &self.node, layout, first, host)?;
        self.servers.add(&pod.netns, both(&pod), &SERVE)?;
        self.pods.entry(layout).or_default().push(pod);
        Ok(())
    }

    /// The addresses of both routers, as clients on this node see them.
    pub(crate) fn routers(&self) -> [(Ipv4Addr, Ipv6Addr); 2] {
        Backbone::routers(self.number)
    }

    /// A pod for clients.
    pub(crate) fn pod(&self, layout: Layout) -> anyhow::Result<&Pod> {
        self.nth_pod(layout, 0)
    }

    /// Another pod with the same layout.
    pub(crate) fn peer(&self, layout: Layout) -> anyhow::Result<&Pod> {
        self.nth_pod(layout, 1)
    }

    /// A name for something of this node; with "node" its own, which the router's interface has too.
    pub(crate) fn name(&self, role: &str) -> String {
        format!("{role}-{}", self.number)
    }

    /// Makes a pod that goes when it is dropped. It has no servers.
    pub(crate) fn another_pod(&self, run: &Run, layout: Layout) -> anyhow::Result<Pod> {
        self.pod_of(run, layout, 100)
    }

    /// The same with this number in its address.
    pub(crate) fn pod_of(&self, run: &Run, layout: Layout, host: u8) -> anyhow::Result<Pod> {
        Pod::create(run, &self.node, layout, self.first, host)
    }

    fn nth_pod(&self, layout: Layout, nth: usize) -> anyhow::Result<&Pod> {
        let pod = self.pods.get(&layout).and_then(|pods| pods.get(nth));
        pod.with_context(|| format!("there is no {layout} pod {nth}"))
    }

    /// Every pod.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().flatten()
    }
}

// They have to be removed in this order.
pub(crate) struct World {
    /// The agent that most cases use.
    pub(crate) site: Site,
    /// A service with the first three near pods.
    pub(crate) web: Target,
    /// A service without endpoints.
    pub(crate) empty: Target,
    /// A service with the policy Local and no endpoint on the node.
    pub(crate) local: Target,
    /// A service with two far pods.
    pub(crate) far: Target,
    /// Two services with the same near pod.
    pub(crate) twins: [Target; 2],
    /// A service with session affinity and the pods of `web`.
    pub(crate) sticky: Target,
    /// Services with [`Place::pod`] of a layout as their endpoint.
    pub(crate) own: BTreeMap<Layout, Target>,
    /// Services with [`Place::peer`] of a layout as their endpoint.
    pub(crate) neighbour: BTreeMap<Layout, Target>,
    servers: Servers,
    /// The node of that agent.
    pub(crate) place: Place,
    pub(crate) backbone: Backbone,
    pub(crate) run: Run,
    vips: Vips,
    places: AtomicU8,
}

impl World {
    /// The endpoints of `web`.
    pub(crate) const WEB: &[u8] = &[11, 12, 13];
    /// The endpoints of `far`.
    pub(crate) const FAR: &[u8] = &[11, 12];

    /// Creates everything.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let backbone = Backbone::create(&run)?;
        let mut servers = Servers::default();
        for distance in Distance::ALL {
            let ips = Backbone::PODS.into_iter().flat_map(|pod| distance.pod(pod));
            servers.add(backbone.pods(distance), ips, &SERVE)?;
        }
        let place = Place::create(&run, &backbone, 0, &Layout::ALL.map(|layout| (layout, 2)))?;
        let vips = Vips::default();
        let web = fresh(&vips, "web").with_remote(Distance::Near, Self::WEB);
        let empty = fresh(&vips, "empty").with(&[]);
        let mut local = fresh(&vips, "local").with_remote(Distance::Near, Self::WEB);
        local.service = local.service.local();
        let far = fresh(&vips, "far").with_remote(Distance::Far, Self::FAR);
        let twins = ["twin-1", "twin-2"]
            .map(|name| fresh(&vips, name).with_remote(Distance::Near, &Self::WEB[..1]));
        let mut sticky = fresh(&vips, "sticky").with_remote(Distance::Near, Self::WEB);
        sticky.service = sticky.service.affinity(60);
        let mut own = BTreeMap::new();
        let mut neighbour = BTreeMap::new();
        for layout in Layout::ALL {
            let (pod, peer) = (place.pod(layout)?, place.peer(layout)?);
            own.insert(layout, fresh(&vips, &format!("own-{layout}")).with_ips(both(pod)));
            let name = format!("neighbour-{layout}");
            neighbour.insert(layout, fresh(&vips, &name).with_ips(both(peer)));
        }
        let targets = [&web, &empty, &local, &far, &twins[0], &twins[1], &sticky].into_iter();
        let services: Vec<_> = targets
            .chain(own.values().chain(neighbour.values()))
            .map(|target| &target.service)
            .collect();
        let site = Site::start(&run, "main", &place.node.netns, FLAGS, &services)?;
        Ok(Self {
            site,
            web,
            empty,
            local,
            far,
            twins,
            sticky,
            own,
            neighbour,
            servers,
            place,
            backbone,
            run,
            vips,
            places: AtomicU8::new(1),
        })
    }

    /// A service with its own addresses, no endpoints, and no agent that knows it.
    pub(crate) fn fresh(&self, name: &str) -> Target {
        fresh(&self.vips, name)
    }

    /// Another node, with this number of pods of these layouts, and no agent.
    pub(crate) fn new_place(&self, pods: &[(Layout, u8)]) -> anyhow::Result<Place> {
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        Place::create(&self.run, &self.backbone, number, pods)
    }

    /// The server at an address of a remote pod, or of a pod of the node.
    pub(crate) fn server(
        &self,
        protocol: Protocol,
        address: SocketAddr,
    ) -> anyhow::Result<&Server> {
        self.servers.at(protocol, address).or_else(|_| self.place.servers.at(protocol, address))
    }
}

/// The addresses of a pod of the node.
fn both(pod: &Pod) -> [IpAddr; 2] {
    [pod.v4().into(), pod.v6().into()]
}

fn fresh(vips: &Vips, name: &str) -> Target {
    vips.target(name).port(Protocol::Tcp, DEAF).port(Protocol::Udp, DEAF)
}
