//! How pods are connected to their node.

use std::{fmt, fs, path::PathBuf};

use clap::ValueEnum;
use serde_json::json;

use super::layout::Node;

/// A CNI plugin, with a configuration that masquerades nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Cni {
    /// A veth and a route for each pod
    #[default]
    Ptp,
    /// A veth for each pod, in a bridge
    Bridge,
    /// The same, and flannel's VXLAN between the nodes of the cluster
    Flannel,
}

impl fmt::Display for Cni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Flannel => "flannel",
        })
    }
}

impl Cni {
    /// The plugin that connects a pod.
    pub(super) const fn plugin(self) -> &'static str {
        match self {
            Self::Ptp => "ptp",
            // flannel's plugin calls it.
            Self::Bridge | Self::Flannel => "bridge",
        }
    }
}

/// Where containerd looks for configurations.
pub(super) fn directory(node: Node) -> PathBuf {
    node.directory().join("cni")
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
    if cni.plugin() == "bridge" {
        plugin["bridge"] = json!("cni0");
        plugin["isGateway"] = json!(true);
        plugin["hairpinMode"] = json!(true);
    }
    if let Some(mtu) = mtu {
        plugin["mtu"] = json!(mtu);
    }
    let ports = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    let list = json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": [plugin, ports] });
    Ok(fs::write(directory.join("pods.conflist"), format!("{list:#}\n"))?)
}
