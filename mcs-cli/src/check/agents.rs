//! Whether the agent serves ClusterSetIPs on every node of a cluster.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::Value;

use super::listed;
use crate::{
    agent_pod::{self, AgentPod, SELECTOR, is_ready, obstacle},
    cluster::{Cluster, NODES, PODS},
};

/// The unready agents that are asked for the reason.
const ASKED: usize = 8;

pub(crate) async fn on_every_node(cluster: &Cluster) -> anyhow::Result<String> {
    let nodes = cluster.list(NODES).await?;
    let pods = cluster.list_in(PODS, None, SELECTOR).await?;
    let mut unready = agent_pod::of_nodes(&pods);
    unready.retain(|pod| pod.obstacle.is_some());
    unready.truncate(ASKED);
    let said = agent_pod::ask_each(&unready, async |pod| degraded(cluster, pod).await).await;
    let said = said.into_iter().filter_map(|(pod, said)| Some((&*pod.name, said?))).collect();
    result(&nodes, &pods, &said)
}

/// The problem that the agent of a pod reports. `None` without an answer: its container may not run.
async fn degraded(cluster: &Cluster, pod: &AgentPod) -> Option<String> {
    let output = pod.run(cluster, &["status", "--output", "json"]).await.ok()?;
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let reasons: Vec<_> = status["degraded"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// `said`: the problems that agents report, by the pod's name.
fn result(
    nodes: &[Value],
    pods: &[Value],
    said: &BTreeMap<&str, String>,
) -> anyhow::Result<String> {
    let mut of_node: BTreeMap<&str, &Value> = BTreeMap::new();
    for pod in pods {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        // While one pod takes over from another, the node has two.
        if is_ready(pod) || !of_node.contains_key(node) {
            of_node.insert(node, pod);
        }
    }
    let names = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str());
    let lacking: Vec<_> = names
        .filter_map(|node| match of_node.get(node) {
            Some(pod) if is_ready(pod) => None,
            Some(pod) => {
                let said = pod["metadata"]["name"].as_str().and_then(|name| said.get(name));
                let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                Some(format!("{node}: {}{said}", obstacle(pod)))
            }
            None => Some(format!("{node}: no pod of the agent")),
        })
        .collect();
    ensure!(
        lacking.is_empty(),
        "no agent is ready on {} of {} nodes, whose pods may not reach services of other clusters: {}",
        lacking.len(),
        nodes.len(),
        listed(&lacking)
    );
    Ok(format!("ready on each of {} nodes", nodes.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str, is_ready: bool, waiting: &Value) -> Value {
        let ready = if is_ready { "True" } else { "False" };
        json!({
            "metadata": {"name": format!("mcs-agent-{node}")},
            "spec": {"nodeName": node},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "initContainerStatuses": [{"state": {"terminated": {}}}],
                "containerStatuses": [{"state": {"waiting": waiting}}],
            },
        })
    }

    #[test]
    fn each_node_without_a_ready_agent_is_named() {
        let nodes = ["a", "b", "d", "c"].map(|name| json!({"metadata": {"name": name}}));
        let image = json!({"reason": "ErrImagePull", "message": "not found"});
        let pods = [
            pod("a", true, &Value::Null),
            pod("a", false, &Value::Null),
            pod("b", false, &image),
            pod("d", false, &Value::Null),
            pod("gone", true, &Value::Null),
        ];
        let said = BTreeMap::from([("mcs-agent-d", "it has not read its source".to_owned())]);
        let error = result(&nodes, &pods, &said).unwrap_err().to_string();
        assert!(error.starts_with("no agent is ready on 3 of 4 nodes"), "{error}");
        let expected = "d: pod mcs-agent-d is not ready: it has not read its source";
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("b: pod mcs-agent-b: ErrImagePull not found"), "{error}");
        assert!(error.ends_with("c: no pod of the agent"), "{error}");
        assert!(result(&nodes[..1], &pods, &said).is_ok());
    }

    #[test]
    fn an_agent_that_cannot_run_on_a_node_says_why() {
        let back_off = json!({"reason": "CrashLoopBackOff", "message": "back-off 10s"});
        let mut pod = pod("a", false, &back_off);
        let said = "it starts\nmcs-agent: no cgroup v2 file system is mounted\n";
        pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = json!(said);
        let expected =
            "pod mcs-agent-a: CrashLoopBackOff mcs-agent: no cgroup v2 file system is mounted";
        assert_eq!(obstacle(&pod), expected);
        let said = "error: unexpected argument '--x' found\n\nUsage: mcs-agent run [OPTIONS]\n\nFor more information, try '--help'.\n";
        pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = json!(said);
        let expected = "pod mcs-agent-a: CrashLoopBackOff error: unexpected argument '--x' found";
        assert_eq!(obstacle(&pod), expected);
    }
}
