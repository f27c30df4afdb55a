//! Whether the agent serves ClusterSetIPs on every node of a cluster.

use std::collections::BTreeMap;

use anyhow::ensure;
use jiff::Timestamp;
use mcs_kube::report::CommonReport;
use serde_json::Value;
use tokio::time::timeout;

use super::{
    Warning, listed,
    reports::{NodeStatus, Reports},
};
use crate::{
    agent_pod::{self, AgentPod, PATIENCE, SELECTOR},
    cluster::{Cluster, NODES, PODS},
};

/// The unready agents that are asked for the reason.
const ASKED: usize = 8;
/// How long an agent may be without the API server, in seconds: that can be restarted.
const LOST: i64 = 60;

pub(crate) async fn on_every_node(cluster: &Cluster) -> anyhow::Result<String> {
    let nodes = cluster.list(NODES).await?;
    let pods = agent_pod::of_nodes(&cluster.list_in(PODS, None, SELECTOR).await?);
    let mut unready: Vec<_> = pods.iter().filter(|pod| pod.obstacle.is_some()).cloned().collect();
    unready.truncate(ASKED);
    // Without an answer its container may not run.
    let said = agent_pod::ask_each(&unready, async |pod: &AgentPod| {
        timeout(PATIENCE, pod.status::<CommonReport>(cluster)).await
    })
    .await;
    let said = said.into_iter().filter_map(|(pod, said)| {
        let degraded = said.ok()?.ok()?.degraded.join("; ");
        (!degraded.is_empty()).then_some((&*pod.name, degraded))
    });
    result(&nodes, &pods, &said.collect())
}

/// `said`: the problems that agents report, by the pod's name.
fn result(
    nodes: &[Value],
    pods: &[AgentPod],
    said: &BTreeMap<&str, String>,
) -> anyhow::Result<String> {
    let of_node: BTreeMap<_, _> = pods.iter().map(|pod| (&*pod.node, pod)).collect();
    let names = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str());
    let lacking: Vec<_> = names
        .filter_map(|node| {
            let Some(pod) = of_node.get(node) else {
                return Some(format!("{node}: no pod of the agent"));
            };
            let obstacle = pod.obstacle.as_ref()?;
            let said = said.get(&*pod.name).map(|said| format!(": {said}")).unwrap_or_default();
            Some(format!("{node}: {obstacle}{said}"))
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

/// What ready agents report: readiness leaves out whether an agent follows the API server. `ready`: what is known without them.
pub(super) fn reported(ready: &str, reports: &Reports, now: Timestamp) -> anyhow::Result<String> {
    let is_lost = |status: &NodeStatus| {
        let kinds = status.own_report().into_iter().flat_map(|report| &report.common.source.kinds);
        let mut lost = kinds.filter_map(|kind| kind.known_until);
        lost.any(|until| now.as_second().saturating_sub_unsigned(until) > LOST)
    };
    let degraded = reports.said.iter().filter(|(_, status)| !status.degraded.is_empty());
    let (lost, others): (Vec<_>, Vec<_>) = degraded.partition(|(_, status)| is_lost(status));
    let lines = |of: &[&(String, NodeStatus)]| {
        let line = |(node, status): &&(String, NodeStatus)| {
            format!("{node}: {}", status.degraded.join("; "))
        };
        listed(&of.iter().map(line).collect::<Vec<_>>())
    };
    ensure!(
        lost.is_empty(),
        "agents do not follow the API server, and pods there have the endpoints of before: {}",
        lines(&lost)
    );
    ensure!(others.is_empty(), Warning(format!("{ready}, and degraded: {}", lines(&others))));
    Ok(match reports.share() {
        Ok(share) => format!("{ready}; {share}"),
        Err(why) => format!("{ready}; none was asked for more: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::reports::tests::reports, *};
    use crate::agent_pod::obstacle;

    fn pod(node: &str, is_ready: bool, waiting: &Value) -> Value {
        let ready = if is_ready { "True" } else { "False" };
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true});
        json!({
            "metadata": {
                "namespace": "mcs-system", "name": format!("mcs-agent-{node}"), "ownerReferences": [owner],
            },
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
        let mut labelled = pod("c", true, &Value::Null);
        labelled["metadata"]["ownerReferences"] = Value::Null;
        let pods = agent_pod::of_nodes(&[
            pod("a", true, &Value::Null),
            pod("a", false, &Value::Null),
            pod("b", false, &image),
            pod("d", false, &Value::Null),
            pod("gone", true, &Value::Null),
            labelled,
        ]);
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
    fn a_ready_agent_that_follows_nothing_is_told() {
        let status = |degraded: &[&str], known_until: Option<i64>| {
            let kind = |until| json!({"resource": "r", "synced": true, "known_until": until});
            let kinds = [kind(None), kind(known_until)];
            json!({"degraded": degraded, "report": {"source": {"kinds": kinds}}})
        };
        let now = Timestamp::from_second(1000).unwrap();
        let of =
            |all: Vec<Value>| reported("ready", &reports(["n1", "n2"].into_iter().zip(all)), now);
        let fine = || status(&[], None);
        assert_eq!(of(vec![fine(), fine()]).unwrap(), "ready; 2 of 2 agents answer");
        let lost = "slices cannot be followed: as of 1 h ago";
        let error = of(vec![fine(), status(&[lost], Some(900))]).unwrap_err();
        assert!(!error.is::<Warning>() && error.to_string().ends_with(&format!("n2: {lost}")));
        let warned = of(vec![status(&[lost], Some(990)), status(&["no reach"], None)]).unwrap_err();
        assert!(warned.is::<Warning>(), "the API server may be restarted: {warned}");
        assert_eq!(warned.to_string(), format!("ready, and degraded: n1: {lost}; n2: no reach"));
        assert!(of(vec![]).unwrap().starts_with("ready; none was asked for more: "));
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
