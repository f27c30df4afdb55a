//! Pods, and the ways in which they are connected to their node.

use super::{Node, Subnet};
use crate::{
    prelude::*,
    wire::{Kind, Wire},
};

/// The address of a routed pod's gateway, and the hardware address of the node's side with the
/// link-local address that follows from it: those of Calico.
const GATEWAY: &str = "169.254.1.1";
const NODE_MAC: &str = "ee:ee:ee:ee:ee:ee";
const NODE_LINK_LOCAL: &str = "fe80::ecee:eeff:feee:eeee";

/// The bridge that pods of [`Layout::Bridged`] are in.
const BRIDGE: &str = "cni0";

/// How a pod is connected to its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Layout {
    /// A veth, and a route to the pod's address alone, as by Calico and the ptp plugin.
    Routed,
    /// A veth in a bridge that has the gateway's address, as by the bridge plugin.
    Bridged,
    /// A tap device, as a virtual machine has: with checksums to finish and packets to cut.
    Tap,
    /// The same without Ethernet headers.
    Tun,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 4] = [Self::Routed, Self::Bridged, Self::Tap, Self::Tun];
    /// Those of CNI plugins.
    pub const CNI: [Self; 2] = [Self::Routed, Self::Bridged];

    /// The subnet of such pods on a node, of whose four subnets this is the first.
    const fn subnet(self, first: Subnet) -> Subnet {
        Subnet(first.0 + self as u8)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Routed => "routed",
            Self::Bridged => "bridged",
            Self::Tap => "tap",
            Self::Tun => "tun",
        })
    }
}

/// A pod: a namespace with one interface, `eth0`, and a default route to its node. The node filters
/// by reverse path, strictly, and so does the pod.
#[derive(Debug)]
pub struct Pod {
    /// Where its processes run.
    pub netns: Namespace,
    /// The interface on the node.
    pub device: String,
    /// How it is connected.
    pub layout: Layout,
    wire: Option<Wire>,
    subnet: Subnet,
    host: u8,
}

impl Pod {
    /// Makes a pod on `node`, whose pods have four subnets from `first` on. `host` is its number
    /// there, not 1, which is the node's.
    pub fn create(run: &Run, node: &Node, layout: Layout, first: Subnet, host: u8) -> Result<Self> {
        let device = format!("{layout}-{host}");
        let role = format!("{}-{host}", layout.subnet(first).0);
        let netns = Namespace::create(run, &format!("pod-{role}"))?;
        for which in ["all", "default"] {
            netns.sysctl(&format!("ipv4/conf/{which}/rp_filter"), "1")?;
        }
        let subnet = layout.subnet(first);
        let mut pod = Self { netns, device, layout, wire: None, subnet, host };
        pod.connect(node)?;
        Ok(pod)
    }

    /// Its IPv4 address.
    pub const fn v4(&self) -> Ipv4Addr {
        self.subnet.v4(self.host)
    }

    /// Its IPv6 address.
    pub const fn v6(&self) -> Ipv6Addr {
        self.subnet.v6(self.host)
    }

    /// Both addresses.
    pub fn both(&self) -> [IpAddr; 2] {
        self.subnet.both(self.host)
    }

    /// The wire that it is connected by, if it is a virtual machine.
    pub const fn wire(&self) -> Option<&Wire> {
        self.wire.as_ref()
    }

    /// Brings a routed pod's device up again, which was in another namespace meanwhile.
    pub fn reconnect(&self, node: &Node) -> Result {
        let (device, v4, v6) = (&self.device, self.v4(), self.v6());
        node.netns.ip(&format!("link set {device} up"))?;
        node.netns
            .ip(&format!("route add {v4}/32 dev {device}\nroute add {v6}/128 dev {device}"))?;
        node.netns.sysctl(&format!("ipv4/conf/{device}/proxy_arp"), "1")?;
        Ok(node.netns.sysctl(&format!("ipv4/neigh/{device}/proxy_delay"), "0")?)
    }

    fn connect(&mut self, node: &Node) -> Result {
        match self.layout {
            Layout::Routed => {
                self.veth(node)?;
                node.netns.ip(&format!("link set {} address {NODE_MAC} up", self.device))?;
                self.route(node, true)
            }
            Layout::Bridged => {
                if node.netns.ip(&format!("link show {BRIDGE}")).is_err() {
                    self.bridge(node)?;
                }
                self.veth(node)?;
                node.netns.ip(&format!("link set {} master {BRIDGE} up", self.device))?;
                self.netns.ip(&format!(
                    "address add {}/24 dev eth0\n\
                     address add {}/64 dev eth0 nodad\n\
                     link set eth0 up\n\
                     route add default via {}\n\
                     route add default via {}\n",
                    self.v4(),
                    self.v6(),
                    self.subnet.v4(1),
                    self.subnet.v6(1),
                ))
            }
            Layout::Tap => {
                self.wire = Some(Wire::lay(Kind::Tap, &node.netns, &self.device, &self.netns)?);
                node.netns.ip(&format!("link set {} address {NODE_MAC} up", self.device))?;
                self.route(node, true)
            }
            Layout::Tun => {
                self.wire = Some(Wire::lay(Kind::Tun, &node.netns, &self.device, &self.netns)?);
                node.netns.ip(&format!("link set {} up", self.device))?;
                self.route(node, false)
            }
        }
    }

    fn veth(&self, node: &Node) -> Result {
        let (device, peer) = (&self.device, self.netns.name());
        node.netns.ip(&format!("link add {device} type veth peer name eth0 netns {peer}"))
    }

    fn bridge(&self, node: &Node) -> Result {
        node.netns.ip(&format!(
            "link add {BRIDGE} type bridge\n\
             address add {}/24 dev {BRIDGE}\n\
             address add {}/64 dev {BRIDGE} nodad\n\
             link set {BRIDGE} up\n",
            self.subnet.v4(1),
            self.subnet.v6(1),
        ))
    }

    /// No subnet: a route to the pod there, and one to the node here, which answers for every
    /// address where neighbours are asked for.
    fn route(&self, node: &Node, neighbours: bool) -> Result {
        let (device, v4, v6) = (&self.device, self.v4(), self.v6());
        node.netns
            .ip(&format!("route add {v4}/32 dev {device}\nroute add {v6}/128 dev {device}"))?;
        let own = format!(
            "address add {v4}/32 dev eth0\n\
             address add {v6}/128 dev eth0 nodad\n\
             link set eth0 up\n"
        );
        if !neighbours {
            return self
                .netns
                .ip(&format!("{own}route add 0.0.0.0/0 dev eth0\nroute add ::/0 dev eth0\n"));
        }
        node.netns.sysctl(&format!("ipv4/conf/{device}/proxy_arp"), "1")?;
        node.netns.sysctl(&format!("ipv4/neigh/{device}/proxy_delay"), "0")?;
        self.netns.ip(&format!(
            "{own}route add {GATEWAY} dev eth0 scope link\n\
             route add default via {GATEWAY} dev eth0\n\
             route add default via {NODE_LINK_LOCAL} dev eth0\n"
        ))
    }
}
