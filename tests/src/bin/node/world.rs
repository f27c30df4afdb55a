//! What the cases share: a node with pods of every layout, remote pods beyond its uplink, and an
//! agent without socket hooks.

use std::ops::Deref;

use mcs_tests::world::{self, Nodes};

use crate::prelude::*;

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
    /// The first one is the node of that agent.
    nodes: Nodes,
}

impl Deref for World {
    type Target = Nodes;

    fn deref(&self) -> &Nodes {
        &self.nodes
    }
}

impl World {
    /// The endpoints of `web`.
    pub(crate) const WEB: &[u8] = &[11, 12, 13];
    /// The endpoints of `far`.
    pub(crate) const FAR: &[u8] = &[11, 12];

    /// Creates everything.
    pub(crate) fn begin(run: Run) -> Result<Self> {
        let nodes = world::World::of(run)
            .serving(&[(Server::tcp_echo, TCP.1), (Server::udp_echo, UDP.1)])
            .ports(&[(Protocol::Tcp, DEAF), (Protocol::Udp, DEAF)])
            .nodes(&Layout::ALL.map(|layout| (layout, 2)))?;
        let near = |name, pods| nodes.fresh(name).with_remote(Distance::Near, pods);
        let web = near("web", Self::WEB);
        let empty = nodes.fresh("empty").with(&[]);
        let mut local = near("local", Self::WEB);
        local.service = local.service.local();
        let far = nodes.fresh("far").with_remote(Distance::Far, Self::FAR);
        let twins = ["twin-1", "twin-2"].map(|name| near(name, &Self::WEB[..1]));
        let mut sticky = near("sticky", Self::WEB);
        sticky.service = sticky.service.affinity(60);
        let (mut own, mut neighbour) = (BTreeMap::new(), BTreeMap::new());
        for layout in Layout::ALL {
            let of =
                |name, pod: &Pod| nodes.fresh(&format!("{name}-{layout}")).with_ips(pod.both());
            own.insert(layout, of("own", nodes.place.pod(layout)?));
            neighbour.insert(layout, of("neighbour", nodes.place.peer(layout)?));
        }
        let targets = [&web, &empty, &local, &far, &twins[0], &twins[1], &sticky].into_iter();
        let services: Vec<_> = targets
            .chain(own.values().chain(neighbour.values()))
            .map(|target| &target.service)
            .collect();
        let site = Site::start(&nodes.run, "main", &nodes.place.node.netns, FLAGS, &services)?;
        Ok(Self { site, web, empty, local, far, twins, sticky, own, neighbour, nodes })
    }
}
