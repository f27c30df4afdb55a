//! The remaining clients of a drained cluster, as the agents of an importing cluster count them.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, ensure};
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::{
    report::{CommonReport, FlowView, SocketCount, Status},
    told,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    agent_pod::{self, AgentPod},
    cluster::{Cluster, NODES},
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
    /// The nodes whose agent goes on sending new clients there, or has not said that it does not, with the reason.
    pub(super) untold: Vec<String>,
    /// What is not known: the nodes without an answer, with the reason.
    unasked: Vec<String>,
}

/// Why new clients of a node may still get the cluster.
fn untold(status: &Status, drained: &str) -> Option<String> {
    let Some(CommonReport { node, pending, .. }) = &status.report else {
        return Some("its agent has no report".to_owned());
    };
    if !node.traffic.is_drained(drained) {
        return Some("its agent does not know of the drain".to_owned());
    }
    let first = pending.first()?;
    Some(format!("its agent has not written it: {first}"))
}

/// Why sockets may be missing in the counts of a node.
fn uncounted(status: &Status) -> Option<String> {
    let lost = status.counters.get("storage_failed").copied().unwrap_or_default();
    (lost > 0).then(|| format!("it had no memory for {lost} uses of sockets (storage_failed)"))
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

    fn clients(&self, sockets: &[SocketCount], flows: &[FlowView]) -> OnNode {
        let mut found = OnNode::default();
        for one in sockets.iter().filter(|one| self.has(one.backend, one.cluster.as_ref())) {
            found.sockets += one.sockets;
            found.unconnected += one.unconnected;
        }
        let is_open = |flow: &&FlowView| flow.state != "closed";
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
        let slices = cluster.slices(None, &selector).await?;
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
        let addresses = addresses.filter_map(|address| address.parse().ok()).collect();
        let drained = Drained { cluster: drained.as_str(), addresses };
        let pods = agent_pod::pods(cluster, None).await?;
        ensure!(!pods.is_empty(), "no pod of the agent was found");
        let ask = async |pod: &AgentPod| on_node(cluster, pod, &drained).await;
        let mut left = Self::default();
        for (pod, answer) in agent_pod::ask_each(&pods, ask).await {
            left.add(&pod.node, answer, drained.cluster);
        }
        match cluster.list(NODES).await {
            Ok(nodes) => left.unasked.extend(without_agent(&nodes, &pods)),
            Err(error) => left.unasked.push(told(&error)),
        }
        Ok(left)
    }

    fn add(&mut self, node: &str, answer: anyhow::Result<(OnNode, Status)>, drained: &str) {
        let (found, status) = match answer {
            Ok(answer) => answer,
            Err(error) => return self.unasked.push(format!("node {node}: {}", told(&error))),
        };
        if found != OnNode::default() {
            self.sockets += found.sockets;
            self.unconnected += found.unconnected;
            self.flows += found.flows;
            self.nodes.insert(node.to_owned());
        }
        self.untold.extend(untold(&status, drained).map(|why| format!("node {node}: {why}")));
        self.unasked.extend(uncounted(&status).map(|why| format!("node {node}: {why}")));
    }

    /// Whether every node has an agent, which has answered that none remains, and that none comes.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Remaining {
    /// `3 sockets, 2 unconnected UDP sockets, 1 flow on 2 nodes; not known: node n3: no answer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, what: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {what}{plural}")
        };
        let Self { sockets, unconnected, flows, nodes, untold, unasked } = self;
        match nodes.len() as u64 {
            0 if self.is_none() => f.write_str("none")?,
            0 => f.write_str("none is known")?,
            nodes => write!(
                f,
                "{}, {}, {} on {}",
                counted(*sockets, "socket"),
                counted(*unconnected, "unconnected UDP socket"),
                counted(*flows, "flow"),
                counted(nodes, "node")
            )?,
        }
        for (what, nodes) in [("new ones may come", untold), ("not known", unasked)] {
            if let Some(first) = nodes.first() {
                write!(f, "; {what}: {first}")?;
            }
            if nodes.len() > 1 {
                write!(f, ", and {} more", nodes.len() - 1)?;
            }
        }
        Ok(())
    }
}

/// The nodes without a pod of the agent. One that ran there may have left its programs, and clients with them.
fn without_agent(nodes: &[Value], pods: &[AgentPod]) -> Vec<String> {
    let names = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str());
    let lacking = names.filter(|name| pods.iter().all(|pod| pod.node != *name));
    lacking.map(|name| format!("node {name}: no pod of the agent")).collect()
}

async fn on_node(
    cluster: &Cluster,
    pod: &AgentPod,
    drained: &Drained<'_>,
) -> anyhow::Result<(OnNode, Status)> {
    // Before the clients are counted: whom an agent sends there that was told later is among them.
    let status = pod.status(cluster).await.context("its status cannot be read")?;
    let sockets: Vec<SocketCount> = pod.read(cluster, &["sockets"]).await?;
    let flows: Vec<FlowView> = pod.read(cluster, &["flows"]).await?;
    Ok((drained.clients(&sockets, &flows), status))
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
        left.unasked = ["node n3: no answer", "node n4: no answer"].map(str::to_owned).into();
        assert!(left.to_string().ends_with("; not known: node n3: no answer, and 1 more"));
        let unasked = Remaining { unasked: left.unasked, ..Remaining::default() };
        assert!(
            !unasked.is_none() && unasked.to_string().starts_with("none is known; not known: ")
        );
    }

    #[test]
    fn who_may_have_clients_is_no_none() {
        let status = |drained: &str, pending: &[&str], failed: u64| {
            json!({
                "counters": {"storage_failed": failed},
                "report": {"node": {"traffic": {drained: {"drain": true}}}, "pending": pending},
            })
        };
        let silent = json!({"degraded": ["no report"], "counters": {}, "report": null});
        for (status, expected) in [
            (status("west", &[], 0), "none"),
            // It has lost its watch, and goes on sending new clients there.
            (
                status("south", &[], 0),
                "none is known; new ones may come: node n1: its agent does not know of the drain",
            ),
            (silent, "none is known; new ones may come: node n1: its agent has no report"),
            (
                status("west", &["no room"], 0),
                "none is known; new ones may come: node n1: its agent has not written it: no room",
            ),
            (
                status("west", &[], 3),
                "none is known; not known: node n1: it had no memory for 3 uses of sockets (storage_failed)",
            ),
        ] {
            let mut left = Remaining::default();
            left.add("n1", Ok((OnNode::default(), agent_pod::tests::status(status))), "west");
            assert_eq!((&*left.to_string(), left.is_none()), (expected, expected == "none"));
        }
    }

    #[test]
    fn a_node_without_an_agent_is_no_none() {
        let pod = |node: &str| AgentPod {
            namespace: "mcs-system".to_owned(),
            name: format!("mcs-agent-{node}"),
            node: node.to_owned(),
            obstacle: None,
        };
        let nodes = ["n1", "n2", "n3"].map(|name| json!({"metadata": {"name": name}}));
        let lacking = without_agent(&nodes, &[pod("n1"), pod("n3"), pod("gone")]);
        assert_eq!(lacking, ["node n2: no pod of the agent"]);
    }

    #[test]
    fn clients_of_every_kind_count() {
        let drained = Drained { cluster: "west", addresses: ["10.2.0.1".parse().unwrap()].into() };
        let frontend = json!({"ip": "241.0.0.1", "port": 53, "protocol": "UDP"});
        let of = |backend: &str, cluster: Value, mut more: Value| {
            more["backend"] = json!(backend);
            more["cluster"] = cluster;
            for (name, value) in frontend.as_object().into_iter().flatten() {
                more[name] = value.clone();
            }
            more
        };
        let sockets = |backend: &str, cluster: Value, counts: [u64; 2]| {
            of(backend, cluster, json!({"sockets": counts[0], "unconnected": counts[1]}))
        };
        let flow = |backend: &str, cluster: Value, state: &str| {
            let more =
                json!({"client": "10.1.0.9:9", "state": state, "idle_seconds": 0, "flags": []});
            of(backend, cluster, more)
        };
        let sockets: Vec<SocketCount> = serde_json::from_value(json!([
            sockets("10.2.0.1:53", Value::Null, [1, 0]),
            // The only client: it sends, and its pod is in no slice any more.
            sockets("10.2.0.2:53", json!("west"), [0, 2]),
            sockets("10.1.0.1:53", json!("east"), [4, 8]),
        ]))
        .unwrap();
        let flows: Vec<FlowView> = serde_json::from_value(json!([
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
