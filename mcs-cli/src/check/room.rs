//! Whether agents have room for what the imports of a cluster ask for.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::listed;
use crate::{
    agent_pod::{self, AgentPod},
    cluster::Cluster,
};

/// The agents that are asked. All of a cluster have one chart, and read the same imports.
const ASKED: usize = 4;

/// The fields of `mcs-agent status -o json` that are read.
#[derive(Deserialize)]
struct Status {
    report: Report,
}

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    rejections: Vec<Rejection>,
}

#[derive(Deserialize)]
struct Rejection {
    object: Object,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
struct Object {
    namespace: String,
    name: String,
}

/// What some agents have no room for. `None`: they have, or none can be asked.
pub(super) async fn lacking(cluster: &Cluster) -> Option<String> {
    let mut pods = agent_pod::pods(cluster, None).await.ok()?;
    pods.retain(|pod| pod.obstacle.is_none());
    pods.truncate(ASKED);
    let said = agent_pod::ask_each(&pods, async |pod| read(cluster, pod).await).await;
    let said = said.into_iter().filter_map(|(pod, said)| Some((&*pod.node, said.ok()?)));
    verdict(said)
}

/// An agent without room is degraded, and its command ends with another status than 0.
async fn read(cluster: &Cluster, pod: &AgentPod) -> anyhow::Result<Status> {
    let output = pod.run(cluster, &["status", "--output", "json"]).await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn verdict<'a>(said: impl Iterator<Item = (&'a str, Status)>) -> Option<String> {
    let (mut nodes, mut imports, mut example) = (BTreeSet::new(), BTreeSet::new(), None);
    for (node, Status { report }) in said {
        for Rejection { object, message, .. } in
            report.rejections.into_iter().filter(|one| one.reason == "capacity")
        {
            nodes.insert(node);
            imports.insert(format!("{}/{}", object.namespace, object.name));
            example.get_or_insert(message);
        }
    }
    let named: Vec<_> = imports.into_iter().collect();
    let nodes: Vec<_> = nodes.into_iter().collect();
    Some(format!(
        "agents have no room for all of {} ServiceImports (nodes asked: {}): {}: {}. Raise capacity.memory of the chart",
        named.len(),
        nodes.join(", "),
        listed(&named),
        example?
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn imports_without_room_are_named() {
        let status = |rejections: Value| {
            serde_json::from_value(json!({"degraded": [], "report": {"rejections": rejections}}))
                .unwrap()
        };
        let rejection = |name: &str, reason: &str| {
            json!({
                "object": {"kind": "ServiceImport", "namespace": "shop", "name": name},
                "reason": reason, "message": "ClusterSetIP 241.0.0.1 does not fit",
            })
        };
        let full =
            || status(json!([rejection("web", "capacity"), rejection("cart", "vip_invalid")]));
        let fine = || status(json!([rejection("cart", "vip_invalid")]));
        assert_eq!(verdict([("n1", fine())].into_iter()), None);
        let found = verdict([("n1", full()), ("n2", fine()), ("n3", full())].into_iter()).unwrap();
        assert!(found.contains("of 1 ServiceImports (nodes asked: n1, n3): shop/web: "), "{found}");
        assert!(found.contains("241.0.0.1 does not fit") && !found.contains("cart"), "{found}");
    }
}
