//! The wide area network between clusters, and the namespaces that are linked to it.
//!
//! ```text
//! this machine        control planes and nodes, each a network namespace
//!      |                      |        |        |
//!  ----+----------------------+--------+--------+----  bridge in the namespace `-wan`
//!                                                      which is everybody's gateway: to nowhere
//! ```

use std::{fmt::Write as _, net::IpAddr, process::Command};

use ipnet::IpNet;

use super::{
    Cni, Plan,
    layout::{Cluster, ClusterSet, Node},
};
use crate::{netns::Namespace, process};

const BRIDGE: &str = "wan";
const LENGTHS: [u8; 2] = [24, 64];
const DEFAULT: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The namespace with the bridge.
pub(super) struct Wan {
    set: ClusterSet,
    plan: Plan,
    netns: Namespace,
}

impl Wan {
    /// Makes it, with nothing but this machine plugged in.
    pub(super) fn create(set: ClusterSet, plan: &Plan) -> anyhow::Result<Self> {
        let netns = Namespace::create_lasting(&set.wan())?;
        netns.forward()?;
        // Switched packets are nobody's to filter.
        netns.sysctl("bridge/bridge-nf-call-iptables", "0")?;
        netns.sysctl("bridge/bridge-nf-call-ip6tables", "0")?;
        let mut commands = format!("link add {BRIDGE} type bridge\nlink set {BRIDGE} up\n");
        commands.push_str(&addresses(set.gateway(), BRIDGE)?);
        for range in DEFAULT {
            writeln!(commands, "route add unreachable {range}")?;
        }
        netns.ip(&commands)?;

        let (device, wan) = (set.name(), netns.name());
        let mut commands = format!(
            "link add {device} type veth peer name machine netns {wan}\nlink set {device} up\n"
        );
        commands.push_str(&addresses(set.machine(), device)?);
        process::run(Command::new("ip").args(["-batch", "-"]), &commands)?;
        netns.ip(&format!("link set machine master {BRIDGE} up"))?;
        Ok(Self { set, plan: plan.clone(), netns })
    }

    /// Makes the namespace of a control plane.
    pub(super) fn control_plane(&self, cluster: Cluster) -> anyhow::Result<Namespace> {
        let netns = Namespace::create_lasting(&cluster.netns())?;
        self.plug(&netns, &cluster.to_string(), cluster.addresses(), None)?;
        Ok(netns)
    }

    /// Makes the namespace of a node, without pods.
    pub(super) fn node(&self, node: Node) -> anyhow::Result<Namespace> {
        let netns = Namespace::create_lasting(&node.netns())?;
        netns.forward()?;
        // As systemd sets it.
        netns.sysctl("ipv4/ping_group_range", "0 2147483647")?;
        // As kube-proxy needs it where pods of a node are in a bridge.
        netns.sysctl("bridge/bridge-nf-call-iptables", "1")?;
        netns.sysctl("bridge/bridge-nf-call-ip6tables", "1")?;
        self.plug(&netns, &node.to_string(), node.addresses(), Some(node))?;
        Ok(netns)
    }

    /// Links a namespace, with routes to the pods of all nodes. The node's own pods need none, and flannel makes the routes of its
    /// cluster.
    fn plug(
        &self,
        netns: &Namespace,
        name: &str,
        own: [IpAddr; 2],
        without: Option<Node>,
    ) -> anyhow::Result<()> {
        let wan = self.netns.name();
        let mut commands =
            format!("link add eth0 type veth peer name {name} netns {wan}\nlink set eth0 up\n");
        commands.push_str(&addresses(own, "eth0")?);
        let mut route = |ranges: [String; 2], via: [IpAddr; 2]| {
            let routes = ranges.into_iter().zip(via);
            routes.into_iter().try_for_each(|(range, via)| {
                writeln!(commands, "route add {range} via {via} dev eth0")
            })
        };
        route(DEFAULT.map(str::to_owned), self.set.gateway())?;
        let by_flannel = |cluster| self.plan.cni(cluster) == Cni::Flannel;
        for cluster in self.set.clusters(self.plan.clusters) {
            let without = |node: Node| match without {
                Some(own) => own == node || own.cluster == cluster && by_flannel(cluster),
                None => false,
            };
            for node in self.plan.nodes(cluster).filter(|node| !without(*node)) {
                route(node.pods().map(|range: IpNet| range.to_string()), node.addresses())?;
            }
        }
        netns.ip(&commands)?;
        self.netns.ip(&format!("link set {name} master {BRIDGE} up"))
    }
}

/// The commands that give addresses of the wide area network to a device.
fn addresses(addresses: [IpAddr; 2], device: &str) -> Result<String, std::fmt::Error> {
    let mut commands = String::new();
    for (address, length) in addresses.into_iter().zip(LENGTHS) {
        let flags = if address.is_ipv6() { " nodad" } else { "" };
        writeln!(commands, "address add {address}/{length} dev {device}{flags}")?;
    }
    Ok(commands)
}
