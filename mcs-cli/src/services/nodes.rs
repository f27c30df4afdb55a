//! The nodes that serve an import, by their agents.

use std::collections::BTreeMap;

use mcs_kube::{one_line, told};
use serde::{Deserialize, Serialize};

use crate::{
    agent_pod::{self, AgentPod},
    cluster::{Cluster, NODES},
};

/// The answers of the agents of a cluster.
#[derive(Debug, Default)]
pub(super) struct AgentViews {
    /// The imports of each node, by namespace and name.
    nodes: BTreeMap<String, BTreeMap<(String, String), Said>>,
    /// The nodes without an answer, and without an agent.
    unknown: Vec<String>,
    /// Why nodes did not answer.
    pub(super) unasked: Vec<String>,
}

#[derive(Debug)]
struct Said {
    state: String,
    message: String,
    is_left_alone: bool,
}

/// The nodes of a cluster, for one import.
#[derive(Debug, Serialize)]
pub(super) struct Nodes {
    /// The agent serves it there.
    pub(super) serving: Vec<String>,
    /// The agent does not.
    pub(super) without: Vec<String>,
    /// The agent leaves it alone by design.
    pub(super) left_alone: Vec<String>,
    /// No agent answered.
    pub(super) unknown: Vec<String>,
    /// Why agents do not serve it or all of it, or leave it alone.
    #[serde(skip)]
    pub(super) reasons: Vec<String>,
}

/// The fields of `mcs-agent services -o json` that are read.
#[derive(Deserialize)]
struct Listed {
    /// Absent: an older agent, whose list is empty before its first report.
    #[serde(default)]
    reported: Option<bool>,
    /// Why what it has reported does not count.
    #[serde(default)]
    unreported: Option<String>,
    imports: Vec<ListedImport>,
}

#[derive(Deserialize)]
struct ListedImport {
    import: Key,
    state: String,
    message: String,
    #[serde(default)]
    left_alone: Option<String>,
}

#[derive(Deserialize)]
struct Key {
    namespace: String,
    name: String,
}

/// Asks the agent of every node.
pub(super) async fn ask(cluster: &Cluster) -> AgentViews {
    let mut views = AgentViews::default();
    let pods = match agent_pod::pods(cluster, None).await {
        Ok(pods) => pods,
        Err(error) => {
            views.unasked.push(format!("agents: {}", told(&error)));
            return views;
        }
    };
    for (pod, answer) in agent_pod::ask_each(&pods, async |pod| list(cluster, pod).await).await {
        match answer {
            Ok(imports) => _ = views.nodes.insert(pod.node.clone(), imports),
            Err(error) => {
                views.unknown.push(pod.node.clone());
                views.unasked.push(format!("agent of node {}: {}", pod.node, told(&error)));
            }
        }
    }
    let nodes = cluster.list(NODES).await.unwrap_or_else(|error| {
        let unseen = format!("nodes without agent are not seen: {}", told(&error));
        views.unasked.push(unseen);
        vec![]
    });
    for node in nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        if !pods.iter().any(|pod| pod.node == name) {
            views.unknown.push(name.to_owned());
            views.unasked.push(format!("node {name} has no agent"));
        }
    }
    views
}

async fn list(
    cluster: &Cluster,
    pod: &AgentPod,
) -> anyhow::Result<BTreeMap<(String, String), Said>> {
    states(pod.read(cluster, &["services"]).await?)
}

fn states(listed: Listed) -> anyhow::Result<BTreeMap<(String, String), Said>> {
    let is_reported = listed.reported.unwrap_or(!listed.imports.is_empty());
    anyhow::ensure!(
        is_reported,
        "{}",
        listed.unreported.as_deref().unwrap_or("it has no report yet")
    );
    let state = |one: ListedImport| {
        let (key, state) = ((one.import.namespace, one.import.name), one.state);
        (key, Said { state, message: one.message, is_left_alone: one.left_alone.is_some() })
    };
    Ok(listed.imports.into_iter().map(state).collect())
}

impl AgentViews {
    /// The nodes of an import, if any is known.
    pub(super) fn of(&self, key: &(String, String)) -> Option<Nodes> {
        if self.nodes.is_empty() && self.unknown.is_empty() {
            return None;
        }
        let (mut serving, mut without, mut left_alone) = (Vec::new(), Vec::new(), Vec::new());
        let mut reasons = BTreeMap::<String, usize>::new();
        for (node, imports) in &self.nodes {
            let reason = if let Some(one) = imports.get(key) {
                let list = match &*one.state {
                    "Ready" | "Partial" => &mut serving,
                    _ if one.is_left_alone => &mut left_alone,
                    _ => &mut without,
                };
                list.push(node.clone());
                if one.state == "Ready" {
                    continue;
                }
                format!("{}: {}", one.state, one.message)
            } else {
                without.push(node.clone());
                "the agent does not know it".to_owned()
            };
            *reasons.entry(one_line(&reason)).or_default() += 1;
        }
        let total = self.nodes.len();
        let told = |(reason, count): (String, usize)| format!("{count} of {total} nodes: {reason}");
        let reasons = reasons.into_iter().map(told).collect();
        Some(Nodes { serving, without, left_alone, unknown: self.unknown.clone(), reasons })
    }
}

impl Nodes {
    /// `2/3`, or the names.
    pub(super) fn text(&self, wide: bool) -> String {
        if wide {
            return self.serving.join(",");
        }
        let others = [&self.without, &self.left_alone, &self.unknown];
        let total = self.serving.len() + others.map(Vec::len).iter().sum::<usize>();
        format!("{}/{total}", self.serving.len())
    }
}

#[cfg(test)]
mod tests {
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::tests::scripted;

    #[test]
    fn nodes_that_do_not_serve_an_import_say_why() {
        let listed = |state: &str| {
            let mut import = json!({
                "import": {"namespace": "shop", "name": "cart"}, "state": state, "message": "why",
            });
            if state == "LeftAlone" {
                import["left_alone"] = json!("record");
            }
            let listed = json!({"frontends": [], "reported": true, "imports": [import]});
            states(serde_json::from_value(listed).unwrap()).unwrap()
        };
        let nodes = [
            ("n1", "Ready"),
            ("n2", "Rejected"),
            ("n3", "Rejected"),
            ("n6", "LeftAlone"),
            ("n7", "Partial"),
        ];
        let mut nodes: BTreeMap<_, _> =
            nodes.map(|(node, state)| (node.to_owned(), listed(state))).into();
        nodes.insert("n4".to_owned(), BTreeMap::new());
        let views = AgentViews { nodes, unknown: vec!["n5".to_owned()], unasked: vec![] };
        let key = ("shop".to_owned(), "cart".to_owned());
        let found = views.of(&key).unwrap();
        assert_eq!((found.text(false), found.text(true)), ("2/7".to_owned(), "n1,n7".to_owned()));
        assert_eq!(found.without, ["n2", "n3", "n4"]);
        assert_eq!(found.left_alone, ["n6"]);
        assert_eq!(
            found.reasons,
            [
                "1 of 6 nodes: LeftAlone: why",
                "1 of 6 nodes: Partial: why",
                "2 of 6 nodes: Rejected: why",
                "1 of 6 nodes: the agent does not know it"
            ]
        );
        assert!(AgentViews::default().of(&key).is_none(), "nobody was asked");
    }

    #[tokio::test]
    async fn what_may_not_be_listed_is_told() {
        let (cluster, _server, _file) =
            scripted("east", [ScriptedAnswer::list("1", []), ScriptedAnswer::error(403)]).await;
        let views = ask(&cluster).await;
        assert!(views.unasked[0].starts_with("nodes without agent are not seen: "), "{views:?}");
    }

    #[test]
    fn an_agent_without_report_is_unknown() {
        let of = |listed: Value| states(serde_json::from_value(listed).unwrap());
        assert!(of(json!({"reported": false, "imports": []})).is_err());
        assert!(of(json!({"imports": []})).is_err(), "an older agent");
        let former = json!({"reported": false, "unreported": "by the agent before", "imports": []});
        assert_eq!(of(former).unwrap_err().to_string(), "by the agent before");
        assert!(of(json!({"reported": true, "imports": []})).unwrap().is_empty());
    }
}
