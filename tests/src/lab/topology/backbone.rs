//! The network beyond a node: routers, and pods of other clusters.

use std::fmt::Write as _;

use super::{Node, Subnet};
use crate::prelude::*;

/// The pods that are reached at full size, and those behind the hop of [`NARROW_MTU`].
const WIDE: Subnet = Subnet(40);
const NARROW: Subnet = Subnet(42);
const HOP: Subnet = Subnet(41);
/// The least that IPv6 allows.
pub const NARROW_MTU: u32 = 1280;
/// For how many nodes there are subnets of their own.
const NODES: u8 = 38;

/// Where a remote pod is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Distance {
    /// Behind one router.
    Near,
    /// Behind a second one, and a hop of [`NARROW_MTU`] between the two.
    Far,
}

impl Distance {
    /// Every distance.
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];

    const fn subnet(self) -> Subnet {
        match self {
            Self::Near => WIDE,
            Self::Far => NARROW,
        }
    }

    /// The addresses of a remote pod.
    pub fn pod(self, host: u8) -> [IpAddr; 2] {
        self.subnet().both(host)
    }
}

/// Two routers in a row, with remote pods behind each. The nodes are on the first one:
///
/// ```text
/// node --- router --- near pods
///             |
///            hop (1280 bytes)
///             |
///        far router --- far pods
/// ```
///
/// Neither has a default route, so that nothing can leave the machine.
#[derive(Debug)]
pub struct Backbone {
    /// The router that nodes are linked to.
    pub router: Namespace,
    far_router: Namespace,
    near: Namespace,
    far: Namespace,
}

impl Backbone {
    /// The addresses of remote pods end in these numbers.
    pub const PODS: [u8; 6] = [11, 12, 13, 14, 15, 16];

    /// Creates everything except nodes.
    pub fn create(run: &Run) -> Result<Self> {
        let router = Namespace::router(run, "router")?;
        let far_router = Namespace::router(run, "far-router")?;
        let near = Namespace::create(run, "near")?;
        let far = Namespace::create(run, "far")?;
        for netns in [&router, &far_router, &near, &far] {
            answer_freely(netns)?;
        }
        link(&router, "near", &near, "eth0", WIDE)?;
        link(&far_router, "far", &far, "eth0", NARROW)?;
        link(&router, "hop", &far_router, "hop", HOP)?;
        for end in [&router, &far_router] {
            end.ip(&format!("link set hop mtu {NARROW_MTU}"))?;
        }
        route(&router, NARROW, 0, HOP, 2)?;
        route(&far_router, Subnet(0), 8, HOP, 1)?;
        for (netns, subnet) in [(&near, WIDE), (&far, NARROW)] {
            let mut commands = String::new();
            for host in Self::PODS {
                writeln!(commands, "address add {}/24 dev eth0", subnet.v4(host))?;
                writeln!(commands, "address add {}/64 dev eth0 nodad", subnet.v6(host))?;
            }
            netns.ip(&commands)?;
            route(netns, Subnet(0), 8, subnet, 1)?;
        }
        Ok(Self { router, far_router, near, far })
    }

    /// The namespace of remote pods.
    pub const fn pods(&self, distance: Distance) -> &Namespace {
        match distance {
            Distance::Near => &self.near,
            Distance::Far => &self.far,
        }
    }

    /// The addresses of the first and of the second router, by which each answers the node with this
    /// number and its pods.
    pub const fn routers(number: u8) -> [(Ipv4Addr, Ipv6Addr); 2] {
        let uplink = uplink(number);
        [(uplink.v4(2), uplink.v6(2)), (HOP.v4(2), HOP.v6(2))]
    }

    /// Flushes the path MTUs that all namespaces have learned.
    pub fn forget_mtus(&self) -> Result {
        [&self.router, &self.far_router, &self.near, &self.far]
            .into_iter()
            .try_for_each(Namespace::forget_mtus)
    }

    /// Makes a node whose default route leads over its interface `uplink` to the router. `number`
    /// counts nodes. Their pods are in four subnets; the first one is returned. A later node has the subnets of one that has
    /// gone: there are no more than 38 at once, beside the one of number 0.
    pub fn node(&self, run: &Run, role: &str, number: u8) -> Result<(Node, Subnet)> {
        let node = Node::named(run, role)?;
        answer_freely(&node.netns)?;
        for which in ["all", "default"] {
            node.netns.sysctl(&format!("ipv4/conf/{which}/rp_filter"), "1")?;
        }
        let pods = Subnet(100 + 4 * place(number));
        let link_to = uplink(number);
        link(&node.netns, "uplink", &self.router, role, link_to)?;
        node.netns.ip(&format!(
            "route add default via {}\nroute add default via {}\n",
            link_to.v4(2),
            link_to.v6(2)
        ))?;
        route(&self.router, pods, 2, link_to, 1)?;
        Ok((node, pods))
    }
}

/// The link of a node to the first router, which is host 2.
const fn uplink(number: u8) -> Subnet {
    Subnet(50 + place(number))
}

/// Which subnets the node with this number has.
const fn place(number: u8) -> u8 {
    if number == 0 { 0 } else { 1 + (number - 1) % NODES }
}

/// Refusals and other errors are not held back for being many.
fn answer_freely(netns: &Namespace) -> Result {
    netns.sysctl("ipv4/icmp_ratelimit", "0")?;
    netns.sysctl("ipv6/icmp/ratelimit", "0")?;
    Ok(())
}

/// Links two namespaces. The first is host 1 of the subnet, the second host 2.
fn link(a: &Namespace, device: &str, b: &Namespace, peer_device: &str, subnet: Subnet) -> Result {
    a.ip(&format!("link add {device} type veth peer name {peer_device} netns {}", b.name()))?;
    for (netns, device, host) in [(a, device, 1), (b, peer_device, 2)] {
        netns.ip(&format!(
            "address add {}/24 dev {device}\n\
             address add {}/64 dev {device} nodad\n\
             link set {device} up\n",
            subnet.v4(host),
            subnet.v6(host),
        ))?;
    }
    Ok(())
}

/// A route to `2^bits` subnets from `first` on, via a host of another subnet.
fn route(netns: &Namespace, first: Subnet, bits: u8, via: Subnet, host: u8) -> Result {
    netns.ip(&format!(
        "route add {}/{} via {}\nroute add {}/{} via {}\n",
        first.v4(0),
        24 - bits,
        via.v4(host),
        first.v6(0),
        64 - bits,
        via.v6(host),
    ))
}
