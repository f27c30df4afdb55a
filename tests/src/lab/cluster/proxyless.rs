//! Nodes without kube-proxy and its rules.

use anyhow::{Context as _, ensure};

use super::{Node, Programs};
use crate::process;

const DAEMON: &str = "kube-proxy";

/// Nodes whose kube-proxy has ended. It starts again when this is dropped.
#[derive(Debug)]
pub struct Proxyless(Vec<Node>);

impl Proxyless {
    /// Ends kube-proxy on nodes, and removes its rules, whatever its mode.
    pub fn stop(programs: &Programs, nodes: &[Node]) -> anyhow::Result<Self> {
        let stopped = Self(nodes.to_owned());
        let kube_proxy = programs.find(DAEMON)?;
        for node in nodes {
            node.stop(DAEMON)?;
            process::run(node.command(&kube_proxy).arg("--cleanup"), "")?;
            let rules = process::run(&mut node.command("iptables-save"), "")?;
            let [api_server, _] = node.cluster.kubernetes();
            ensure!(!rules.contains(&api_server.to_string()), "{node} has rules: {rules}");
            let rules = process::run(node.command("nft").args(["list", "ruleset"]), "")?;
            ensure!(!rules.contains("table ip kube-proxy"), "{node} has rules: {rules}");
        }
        Ok(stopped)
    }
}

impl Drop for Proxyless {
    fn drop(&mut self) {
        for node in &self.0 {
            if let Err(error) = node.start(DAEMON).with_context(|| node.to_string()) {
                eprintln!("cannot start {DAEMON} again: {error:#}");
            }
        }
    }
}
