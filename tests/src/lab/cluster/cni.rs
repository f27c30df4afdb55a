//! How pods are connected to their node.

use std::{
    fmt::{self, Write as _},
    fs,
    path::PathBuf,
};

use clap::ValueEnum;
use serde_json::json;

use super::layout::Node;
use crate::netns::Namespace;

/// What connects pods. [`Self::BridgeMasq`] alone masquerades.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Cni {
    /// A veth and a route for each pod
    #[default]
    Ptp,
    /// A veth for each pod, in a bridge
    Bridge,
    /// The same, and flannel's VXLAN between the nodes of the cluster
    Flannel,
    /// As bridge, and what leaves the pods of a node gets the node's address
    BridgeMasq,
    /// A macvlan on eth0 for each pod; the node has one too, by which it reaches its pods
    Macvlan,
    /// Cilium's agent beside kube-proxy
    Cilium,
}

impl fmt::Display for Cni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Flannel => "flannel",
            Self::BridgeMasq => "bridge-masq",
            Self::Macvlan => "macvlan",
            Self::Cilium => "cilium",
        })
    }
}

impl Cni {
    /// The plugin that connects a pod.
    pub(super) const fn plugin(self) -> &'static str {
        match self {
            Self::Ptp => "ptp",
            // flannel's plugin calls it.
            Self::Bridge | Self::Flannel | Self::BridgeMasq => "bridge",
            Self::Macvlan => "macvlan",
            Self::Cilium => "cilium-cni",
        }
    }

    /// Whether something has to run on a node before its pods are connected.
    pub(super) const fn has_daemon(self) -> bool {
        matches!(self, Self::Flannel | Self::Cilium)
    }
}

/// The macvlan of the node itself.
const OWN_MACVLAN: &str = "pods";

/// Where containerd looks for configurations.
pub(super) fn directory(node: Node) -> PathBuf {
    node.directory().join("cni")
}

/// Connects the pods of a node, by what is there already.
pub(super) fn install(cni: Cni, node: Node) -> anyhow::Result<()> {
    if cni == Cni::Cilium {
        return node.start_cilium();
    }
    if cni == Cni::Macvlan {
        let mut commands = format!(
            "link add {OWN_MACVLAN} link eth0 type macvlan mode bridge\nlink set {OWN_MACVLAN} up\n"
        );
        for gateway in node.gateway() {
            let flags = if gateway.addr().is_ipv6() { " nodad" } else { "" };
            writeln!(commands, "address add {gateway} dev {OWN_MACVLAN}{flags}")?;
        }
        Namespace::open(&node.netns())?.ip(&commands)?;
    }
    write(cni, node, None)
}

/// Writes the configuration of a node. Without `mtu`, devices of pods have that of the machine.
pub(super) fn write(cni: Cni, node: Node, mtu: Option<u16>) -> anyhow::Result<()> {
    let directory = directory(node);
    fs::create_dir_all(&directory)?;
    let mut plugin = json!({
        "type": cni.plugin(),
        "ipam": {
            "type": "host-local",
            "dataDir": directory.join("addresses"),
            "ranges": node.pods().map(|range| [json!({ "subnet": range })]),
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
        },
    });
    match cni.plugin() {
        "bridge" => {
            plugin["bridge"] = json!("cni0");
            plugin["isGateway"] = json!(true);
            plugin["hairpinMode"] = json!(true);
            plugin["ipMasq"] = json!(cni == Cni::BridgeMasq);
        }
        "macvlan" => plugin["master"] = json!("eth0"),
        _ => {}
    }
    if let Some(mtu) = mtu {
        plugin["mtu"] = json!(mtu);
    }
    let ports = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    let list = json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": [plugin, ports] });
    Ok(fs::write(directory.join("pods.conflist"), format!("{list:#}\n"))?)
}
