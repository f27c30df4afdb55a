//! The nodes that serve an import, by their agents.

use std::{collections::BTreeMap, sync::Arc};

use mcs_kube::{
    ObjectKey, one_line,
    report::{ImportList, ImportReport, ImportState},
    told,
};
use serde::Serialize;

use crate::{
    agent_pod::{self, AgentPod},
    cluster::{Cluster, NODES},
};

/// The imports that an agent knows.
type Imports = BTreeMap<ObjectKey, Arc<ImportReport>>;

/// The answers of the agents of a cluster.
#[derive(Debug, Default)]
pub(crate) struct AgentViews {
    /// The imports of each node.
    nodes: BTreeMap<String, Imports>,
    /// The nodes without an answer, and without an agent.
    unknown: Vec<String>,
    /// Why nodes did not answer.
    pub(crate) unasked: Vec<String>,
}

/// The nodes of a cluster, for one import.
#[derive(Debug, Serialize)]
pub(crate) struct Nodes {
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

/// Asks the agent of every node about the imports of a namespace, or about all.
pub(crate) async fn ask(cluster: &Cluster, namespace: Option<&str>) -> AgentViews {
    let mut views = AgentViews::default();
    let pods = match agent_pod::pods(cluster, None).await {
        Ok(pods) => pods,
        Err(error) => {
            views.unasked.push(format!("agents: {}", told(&error)));
            return views;
        }
    };
    let mut words = vec!["services"];
    words.extend(namespace.iter().flat_map(|namespace| ["--namespace", *namespace]));
    let list = async |pod: &AgentPod| known(&pod.read(cluster, &words).await?);
    for (pod, answer) in agent_pod::ask_each(&pods, list).await {
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

fn known(list: &ImportList) -> anyhow::Result<Imports> {
    let why = list.unreported.as_deref().unwrap_or("it has no report yet");
    anyhow::ensure!(list.reported, "{why}");
    Ok(list.imports.iter().map(|one| (one.import.clone(), Arc::clone(one))).collect())
}

impl AgentViews {
    /// The nodes of an import, if any is known.
    pub(super) fn of(&self, key: &ObjectKey) -> Option<Nodes> {
        if self.nodes.is_empty() && self.unknown.is_empty() {
            return None;
        }
        let (mut serving, mut without, mut left_alone) = (Vec::new(), Vec::new(), Vec::new());
        let mut reasons = BTreeMap::<String, usize>::new();
        for (node, imports) in &self.nodes {
            let reason = if let Some(one) = imports.get(key) {
                let list = match one.state {
                    ImportState::Ready | ImportState::Partial => &mut serving,
                    ImportState::LeftAlone => &mut left_alone,
                    ImportState::Refusing | ImportState::Rejected => &mut without,
                };
                list.push(node.clone());
                if one.state == ImportState::Ready {
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
    /// `2/3`.
    pub(super) fn counted(&self) -> String {
        let others = [&self.without, &self.left_alone, &self.unknown];
        let total = self.serving.len() + others.map(Vec::len).iter().sum::<usize>();
        format!("{}/{total}", self.serving.len())
    }

    /// `served on n1, n2; not on n3`.
    pub(crate) fn named(&self) -> String {
        let lists = [
            ("served on", &self.serving),
            ("not on", &self.without),
            ("left alone on", &self.left_alone),
            ("not known of", &self.unknown),
        ];
        let lists = lists.into_iter().filter(|(_, nodes)| !nodes.is_empty());
        lists
            .map(|(what, nodes)| format!("{what} {}", nodes.join(", ")))
            .collect::<Vec<_>>()
            .join("; ")
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
            known(&serde_json::from_value(listed).unwrap()).unwrap()
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
        let key = ObjectKey::new("shop", "cart");
        let found = views.of(&key).unwrap();
        assert_eq!(found.counted(), "2/7");
        let named = "served on n1, n7; not on n2, n3, n4; left alone on n6; not known of n5";
        assert_eq!(found.named(), named);
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
        let views = ask(&cluster, None).await;
        assert!(views.unasked[0].starts_with("nodes without agent are not seen: "), "{views:?}");
    }

    #[test]
    fn an_agent_without_report_is_unknown() {
        let of = |listed: Value| known(&serde_json::from_value(listed).unwrap());
        assert!(of(json!({"reported": false, "imports": []})).is_err());
        let former = json!({"reported": false, "unreported": "by the agent before", "imports": []});
        assert_eq!(of(former).unwrap_err().to_string(), "by the agent before");
        assert!(of(json!({"reported": true, "imports": []})).unwrap().is_empty());
    }
}
