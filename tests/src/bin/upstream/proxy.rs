//! kube-proxy of the nodes, which stops and starts again.

use mcs_tests::{
    cluster::{Node, Programs},
    prelude::*,
};

const DAEMON: &str = "kube-proxy";

/// Ends it on every node, and removes its rules.
pub(crate) fn stop(programs: &Programs, nodes: &[Node]) -> Result {
    let program = programs.find(DAEMON)?;
    for node in nodes {
        node.stop(DAEMON)?;
        process::run(node.command(&program).arg("--cleanup"), "")?;
        let rules = process::run(node.command("nft").args(["list", "ruleset"]), "")?;
        ensure!(!rules.contains("table ip kube-proxy"), "{node} has rules of kube-proxy: {rules}");
    }
    Ok(())
}

/// Starts it on every node.
pub(crate) fn start(nodes: &[Node]) -> Result {
    nodes.iter().try_for_each(|node| node.start(DAEMON))
}
