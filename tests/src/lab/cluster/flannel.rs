//! flannel's VXLAN between the nodes of a cluster.

use std::fs;

use anyhow::Context as _;
use serde_json::json;

use super::{ClusterSetup, cni, daemons::Daemons, layout::Node, node};

/// Starts it on a node whose kubelet runs, and configures the CNI plugin when it is ready: the node has no network before.
pub(super) fn start(
    setup: &ClusterSetup<'_>,
    node: Node,
    daemons: &mut Daemons,
) -> anyhow::Result<()> {
    let (cluster, directory) = (node.cluster, node.directory());
    let (configuration, subnet) = (directory.join("flannel.json"), directory.join("flannel.env"));
    let [v4, v6] = cluster.pods();
    let text = json!({
        "EnableIPv4": true,
        "EnableIPv6": true,
        "Network": v4,
        "IPv6Network": v6,
        "Backend": { "Type": "vxlan" },
    });
    fs::write(&configuration, format!("{text:#}\n"))?;

    node::assign_ranges(setup, node, daemons)?;

    let path = |file: &std::path::Path| file.display().to_string();
    let words = [
        format!("NODE_NAME={node}"),
        path(&setup.programs.find("flannel")?),
        path(&cluster.kubeconfig()),
        path(&configuration),
        "eth0".to_owned(),
        path(&subnet),
    ];
    daemons.start("flannel", &setup.programs.find("env")?, words)?;
    let mtu = daemons.wait(&format!("flannel of {node}"), setup.observer, || {
        let text = fs::read_to_string(&subnet)?;
        let mtu = text.lines().find_map(|line| line.strip_prefix("FLANNEL_MTU="));
        Ok(mtu.context("no MTU")?.parse()?)
    })?;
    cni::write(setup.plan.cni(cluster), node, Some(mtu))
}
