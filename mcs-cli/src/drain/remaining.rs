//! The remaining clients of a drained cluster, as the agents of an importing cluster count them.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use anyhow::ensure;
use mcs_controller::clusterset::{ClusterId, well_known};
use mcs_kube::told;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agent_pod::{self, AgentPod},
    cluster::{Cluster, SLICES},
};

/// Clients on the nodes of one cluster that still use the drained one.
#[derive(PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Remaining {
    /// Sockets connected to it.
    sockets: u64,
    /// Open flows of the packet path to it.
    flows: u64,
    /// The nodes with such sockets or flows.
    nodes: BTreeSet<String>,
    /// The agents that did not answer, with the reason.
    unasked: Vec<String>,
}

/// The fields of `mcs-agent sockets -o json` that are read.
#[derive(Deserialize)]
struct Connected {
    backend: SocketAddr,
    sockets: u64,
}

/// The fields of `mcs-agent flows -o json` that are read.
#[derive(Deserialize)]
struct Flow {
    backend: SocketAddr,
    state: String,
}

impl Remaining {
    /// Asks the agents of a cluster.
    pub(super) async fn in_cluster(cluster: &Cluster, drained: &ClusterId) -> Self {
        Self::try_in_cluster(cluster, drained)
            .await
            .unwrap_or_else(|error| Self { unasked: vec![told(&error)], ..Self::default() })
    }

    async fn try_in_cluster(cluster: &Cluster, drained: &ClusterId) -> anyhow::Result<Self> {
        // The maps forget the cluster of a TCP backend that gets no new clients. The slices stay.
        let selector = format!("{}={drained}", well_known::SOURCE_CLUSTER);
        let slices = cluster.list_in(SLICES, None, &selector).await?;
        let addresses: HashSet<IpAddr> = slices.iter().flat_map(addresses).collect();
        let pods = agent_pod::pods(cluster, None).await?;
        ensure!(!pods.is_empty(), "no pod of the agent was found");
        let ask = async |pod: &AgentPod| on_node(cluster, pod, &addresses).await;
        let mut left = Self::default();
        for (pod, answer) in agent_pod::ask_each(&pods, ask).await {
            match answer {
                Ok((0, 0)) => {}
                Ok((sockets, flows)) => {
                    left.sockets += sockets;
                    left.flows += flows;
                    left.nodes.insert(pod.node.clone());
                }
                Err(error) => left.unasked.push(format!("node {}: {}", pod.node, told(&error))),
            }
        }
        Ok(left)
    }

    /// Whether every agent has answered that none remains.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Remaining {
    /// `3 sockets, 1 flow on 2 nodes; 1 agent not asked`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        };
        let Self { sockets, flows, nodes, unasked } = self;
        match nodes.len() as u64 {
            0 => f.write_str("none")?,
            nodes => write!(
                f,
                "{}, {} on {}",
                counted(*sockets, "socket"),
                counted(*flows, "flow"),
                counted(nodes, "node")
            )?,
        }
        match unasked.first() {
            Some(first) => write!(f, "; not asked: {first}"),
            None => Ok(()),
        }
    }
}

/// The sockets and flows on a node that lead to one of these addresses.
async fn on_node(
    cluster: &Cluster,
    pod: &AgentPod,
    addresses: &HashSet<IpAddr>,
) -> anyhow::Result<(u64, u64)> {
    let sockets: Vec<Connected> = pod.read(cluster, &["sockets"]).await?;
    let flows: Vec<Flow> = pod.read(cluster, &["flows"]).await?;
    let leads_there = |backend: &SocketAddr| addresses.contains(&backend.ip());
    let sockets = sockets.iter().filter(|one| leads_there(&one.backend)).map(|one| one.sockets);
    let flows = flows.iter().filter(|one| leads_there(&one.backend) && one.state != "closed");
    Ok((sockets.sum(), flows.count() as u64))
}

fn addresses(slice: &Value) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let addresses = endpoints.filter_map(|one| one["addresses"].as_array()).flatten();
    addresses.filter_map(|address| address.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_a_line() {
        let mut left = Remaining::default();
        assert_eq!((left.to_string(), left.is_none()), ("none".to_owned(), true));
        left = Remaining { sockets: 3, flows: 1, nodes: ["n1".into(), "n2".into()].into(), ..left };
        assert_eq!(left.to_string(), "3 sockets, 1 flow on 2 nodes");
        left.unasked.push("node n3: no answer".to_owned());
        assert!(left.to_string().ends_with("; not asked: node n3: no answer"));
        let unasked = Remaining { unasked: left.unasked, ..Remaining::default() };
        assert!(!unasked.is_none(), "nobody knows");
    }
}
