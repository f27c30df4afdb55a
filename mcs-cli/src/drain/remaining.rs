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
    /// UDP sockets that send to it without connecting.
    unconnected: u64,
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
    cluster: Option<String>,
    sockets: u64,
    unconnected: u64,
}

/// The fields of `mcs-agent flows -o json` that are read.
#[derive(Deserialize)]
struct Flow {
    backend: SocketAddr,
    cluster: Option<String>,
    state: String,
}

/// What a node has to do with the drained cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct OnNode {
    sockets: u64,
    unconnected: u64,
    flows: u64,
}

/// The drained cluster, and where its pods are.
struct Drained<'a> {
    cluster: &'a str,
    /// The maps forget the cluster of a TCP backend that gets no new clients. The slices stay.
    addresses: HashSet<IpAddr>,
}

impl Drained<'_> {
    fn has(&self, backend: SocketAddr, cluster: Option<&String>) -> bool {
        self.addresses.contains(&backend.ip()) || cluster.is_some_and(|one| one == self.cluster)
    }

    fn clients(&self, sockets: &[Connected], flows: &[Flow]) -> OnNode {
        let mut found = OnNode::default();
        for one in sockets.iter().filter(|one| self.has(one.backend, one.cluster.as_ref())) {
            found.sockets += one.sockets;
            found.unconnected += one.unconnected;
        }
        let is_open = |flow: &&Flow| flow.state != "closed";
        let flows = flows.iter().filter(is_open);
        let flows = flows.filter(|flow| self.has(flow.backend, flow.cluster.as_ref()));
        found.flows = flows.count() as u64;
        found
    }
}

impl Remaining {
    /// Asks the agents of a cluster.
    pub(super) async fn in_cluster(cluster: &Cluster, drained: &ClusterId) -> Self {
        Self::try_in_cluster(cluster, drained)
            .await
            .unwrap_or_else(|error| Self { unasked: vec![told(&error)], ..Self::default() })
    }

    async fn try_in_cluster(cluster: &Cluster, drained: &ClusterId) -> anyhow::Result<Self> {
        let selector = format!("{}={drained}", well_known::SOURCE_CLUSTER);
        let slices = cluster.list_in(SLICES, None, &selector).await?;
        let addresses = slices.iter().flat_map(addresses).collect();
        let drained = Drained { cluster: drained.as_str(), addresses };
        let pods = agent_pod::pods(cluster, None).await?;
        ensure!(!pods.is_empty(), "no pod of the agent was found");
        let ask = async |pod: &AgentPod| on_node(cluster, pod, &drained).await;
        let mut left = Self::default();
        for (pod, answer) in agent_pod::ask_each(&pods, ask).await {
            match answer {
                Ok(found) if found == OnNode::default() => {}
                Ok(OnNode { sockets, unconnected, flows }) => {
                    left.sockets += sockets;
                    left.unconnected += unconnected;
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
    /// `3 sockets, 2 unconnected UDP sockets, 1 flow on 2 nodes; not asked: node n3: no answer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        };
        let Self { sockets, unconnected, flows, nodes, unasked } = self;
        match nodes.len() as u64 {
            0 => f.write_str("none")?,
            nodes => write!(
                f,
                "{}, {}, {} on {}",
                counted(*sockets, "socket"),
                counted(*unconnected, "unconnected UDP socket"),
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

async fn on_node(
    cluster: &Cluster,
    pod: &AgentPod,
    drained: &Drained<'_>,
) -> anyhow::Result<OnNode> {
    let sockets: Vec<Connected> = pod.read(cluster, &["sockets"]).await?;
    let flows: Vec<Flow> = pod.read(cluster, &["flows"]).await?;
    Ok(drained.clients(&sockets, &flows))
}

fn addresses(slice: &Value) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let addresses = endpoints.filter_map(|one| one["addresses"].as_array()).flatten();
    addresses.filter_map(|address| address.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_is_told_in_a_line() {
        let mut left = Remaining::default();
        assert_eq!((left.to_string(), left.is_none()), ("none".to_owned(), true));
        left = Remaining { sockets: 3, flows: 1, nodes: ["n1".into(), "n2".into()].into(), ..left };
        assert_eq!(left.to_string(), "3 sockets, 0 unconnected UDP sockets, 1 flow on 2 nodes");
        left.unasked.push("node n3: no answer".to_owned());
        assert!(left.to_string().ends_with("; not asked: node n3: no answer"));
        let unasked = Remaining { unasked: left.unasked, ..Remaining::default() };
        assert!(!unasked.is_none(), "nobody knows");
    }

    #[test]
    fn clients_of_every_kind_count() {
        let drained = Drained { cluster: "west", addresses: ["10.2.0.1".parse().unwrap()].into() };
        let sockets = |backend: &str, cluster: Value, counts: [u64; 2]| json!({"backend": backend, "cluster": cluster, "sockets": counts[0], "unconnected": counts[1]});
        let flow = |backend: &str, cluster: Value, state: &str| json!({"backend": backend, "cluster": cluster, "state": state});
        let sockets: Vec<Connected> = serde_json::from_value(json!([
            sockets("10.2.0.1:53", Value::Null, [1, 0]),
            // The only client: it sends, and its pod is in no slice any more.
            sockets("10.2.0.2:53", json!("west"), [0, 2]),
            sockets("10.1.0.1:53", json!("east"), [4, 8]),
        ]))
        .unwrap();
        let flows: Vec<Flow> = serde_json::from_value(json!([
            flow("10.2.0.1:53", Value::Null, "replied"),
            flow("10.2.0.3:53", json!("west"), "unreplied"),
            flow("10.2.0.1:80", json!("west"), "closed"),
            flow("10.1.0.1:53", json!("east"), "replied"),
        ]))
        .unwrap();
        let found = drained.clients(&sockets, &flows);
        assert_eq!(found, OnNode { sockets: 1, unconnected: 2, flows: 2 });
    }
}
