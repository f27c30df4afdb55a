//! The state of one service in one cluster, by the objects there and by the agents of its nodes.

use std::collections::BTreeMap;

use mcs_controller::core::clusterset::{
    ConditionType::{
        self, Accepted, Conflict, EndpointsReady, ImportConflict, Imported, Ready as IsReady, Valid,
    },
    ServiceName, well_known,
};
use mcs_kube::{
    ObjectKey, one_line,
    reasons::{Coded as _, Reason},
    told,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    nodes::{AgentViews, Nodes},
    ready::{Ready, by_cluster},
};
use crate::{
    cluster::{Cluster, EXPORTS, IMPORTS, NAMESPACES},
    status::{self, condition, text},
};

/// A service in one cluster. `services` and `explain -o json` list them: fields are added, never renamed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Service {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `ClusterSetIP` or `Headless`; empty without import.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) addresses: Vec<String>,
    /// The reason of the import's most important condition; `none` or `no namespace`: it is not imported.
    pub(crate) import: String,
    /// The same for the cluster's own export.
    pub(crate) export: String,
    /// The clusters that contribute to the import.
    pub(crate) clusters: Vec<String>,
    /// The endpoints of each source cluster; null if the slices could not be read.
    pub(crate) ready: Option<BTreeMap<String, Ready>>,
    /// Null if no agent was asked.
    pub(crate) nodes: Option<Nodes>,
    /// The problems.
    pub(crate) problems: Vec<String>,
    /// The import is missing, or not ready as far as its controller has to say so.
    #[serde(skip)]
    pub(crate) is_refused: bool,
    /// It is refused, a port has no ready endpoint, or a node does not serve it.
    #[serde(skip)]
    pub(crate) is_wrong: bool,
}

/// The objects of a service in a cluster.
#[derive(Clone, Copy, Default)]
pub(super) struct Objects<'a> {
    pub(super) export: Option<&'a Value>,
    pub(super) import: Option<&'a Value>,
    pub(super) lacks_namespace: bool,
}

/// Reads one service, and why its slices could not be read.
pub(crate) async fn read(
    cluster: &Cluster,
    name: &ServiceName,
    views: Option<&AgentViews>,
) -> anyhow::Result<(Service, Option<String>)> {
    let namespace = name.namespace();
    // A caller without the right to read namespaces gets the other results.
    let found = cluster.get(NAMESPACES, None, namespace).await;
    let lacks_namespace = found.is_ok_and(|found| found.is_none());
    let export = cluster.get(EXPORTS, Some(namespace), name.name()).await?;
    let import = cluster.get(IMPORTS, Some(namespace), name.name()).await?;
    let objects = Objects { export: export.as_ref(), import: import.as_ref(), lacks_namespace };
    let key = ObjectKey::new(namespace, name.name());
    let selector = format!("{}={}", well_known::SERVICE_NAME, name.name());
    let (ready, unread) = match cluster.slices(Some(namespace), &selector).await {
        Ok(slices) => {
            (by_cluster(&slices, &import).remove(&key).or_else(|| Some(BTreeMap::new())), None)
        }
        Err(error) => (None, Some(told(&error))),
    };
    Ok((Service::of(cluster.id.as_str(), &key, objects, ready, views), unread))
}

impl Service {
    pub(super) fn of(
        cluster: &str,
        key: &ObjectKey,
        objects: Objects<'_>,
        mut ready: Option<BTreeMap<String, Ready>>,
        views: Option<&AgentViews>,
    ) -> Self {
        let ObjectKey { namespace, name } = key;
        let object = objects.import.unwrap_or(&Value::Null);
        let unready = objects.import.and_then(status::unready);
        let mut problems = Vec::new();
        let export = reason(objects.export, &EXPORTED, &mut problems);
        let mut import = reason(objects.import, &[(IsReady, "True")], &mut problems);
        let others = [(EndpointsReady, "True"), (ImportConflict, "False")];
        reason(objects.import, &others, &mut problems);
        match objects.import {
            None if objects.lacks_namespace => {
                "no namespace".clone_into(&mut import);
                problems.push(format!("this cluster lacks namespace {namespace}: {NAMESPACE}"));
            }
            None => problems.push(NOT_IMPORTED.to_owned()),
            // Other controllers need not write condition `Ready`.
            Some(_) if unready.is_none() && condition(object, IsReady.name()).is_none() => {
                "-".clone_into(&mut import);
            }
            Some(_) => {}
        }
        problems.dedup();
        let texts = |list: &Value, one: fn(&Value) -> &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().map(|item| one_line(&text(one(item)))).collect()
        };
        let addresses = texts(&object["spec"]["ips"], |ip| ip);
        let clusters = texts(&object["status"]["clusters"], |one| &one["cluster"]);
        let kind = text(&object["spec"]["type"]);
        // An import without address is served by DNS only.
        let has_address = kind == "ClusterSetIP" && !addresses.is_empty();
        let nodes = views.filter(|_| has_address).and_then(|views| views.of(key));
        if let Some(ready) = &mut ready {
            // One without slices has no endpoint here.
            for cluster in &clusters {
                ready.entry(cluster.clone()).or_default();
            }
        }
        if problems.is_empty() {
            // The other conditions of this controller's imports report the same problem.
            let accepted = condition(object, Accepted.name());
            let refused = accepted.filter(|one| one["status"] != "True");
            let refused = refused.map(|one| text(&one["message"]));
            problems.extend(refused.or(unready.as_ref().map(|unready| unready.message.clone())));
        }
        problems.extend(nodes.iter().flat_map(|nodes| nodes.reasons.iter().cloned()));
        let is_false = |kind: &ConditionType| {
            condition(object, kind.name()).is_some_and(|one| one["status"] == "False")
        };
        let is_refused = objects.import.is_none() || unready.is_some();
        let is_unserved = nodes.as_ref().is_some_and(|nodes| !nodes.without.is_empty());
        Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            kind,
            addresses,
            import,
            export,
            clusters,
            ready,
            nodes,
            problems: problems.iter().map(|problem| one_line(problem)).collect(),
            is_refused,
            is_wrong: is_refused || is_unserved || [EndpointsReady, Accepted].iter().any(is_false),
        }
    }

    /// `east 3/3 west 0/2`, or the clusters alone.
    pub(crate) fn sources(&self) -> String {
        let Some(ready) = &self.ready else { return self.clusters.join(" ") };
        let counts = ready.iter().map(|(cluster, ready)| {
            let cluster = if cluster.is_empty() { "?" } else { cluster };
            format!("{} {}/{}", one_line(cluster), ready.ready, ready.total)
        });
        counts.collect::<Vec<_>>().join(" ")
    }
}

/// The conditions of an export that is imported everywhere.
const EXPORTED: [(ConditionType, &str); 4] =
    [(Valid, "True"), (IsReady, "True"), (Imported, "True"), (Conflict, "False")];

const NAMESPACE: &str = "create it, or let the controller do so (--create-namespaces)";

const NOT_IMPORTED: &str = "there is no import: no cluster exports it to this one (see its ServiceExports, their audience, and \
    `namespaces` of the ClusterPeers here), or the API server of this cluster refuses it (see condition ImportsWritten of the \
    ClusterPeers here, and the Events of the namespace)";

/// The reason of the first of these conditions that fails, else of `Ready`. Adds the messages of those that fail.
fn reason(
    object: Option<&Value>,
    wanted: &[(ConditionType, &str)],
    problems: &mut Vec<String>,
) -> String {
    let Some(object) = object else { return "none".to_owned() };
    let found =
        wanted.iter().filter_map(|(kind, good)| Some((condition(object, kind.name())?, *good)));
    let is_failing = |(one, good): &(&Value, &str)| {
        one["status"] != *good || one["reason"] == Reason::PortPartlyReady.name()
    };
    let failing: Vec<_> = found.filter(is_failing).map(|(one, _)| one).collect();
    problems.extend(failing.iter().map(|one| text(&one["message"])));
    let shown = failing.first().copied().or_else(|| condition(object, IsReady.name()));
    shown.map_or_else(|| "Pending".to_owned(), |one| one_line(&text(&one["reason"])))
}

#[cfg(test)]
mod tests {
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::{object, scripted};

    fn of(export: Option<&Value>, import: Option<&Value>) -> Service {
        let key = ObjectKey::new("shop", "cart");
        let objects = Objects { export, import, lacks_namespace: false };
        Service::of("east", &key, objects, Some(BTreeMap::new()), None)
    }

    fn one(kind: ConditionType, status: &str, reason: &str) -> Value {
        json!({"type": kind.name(), "status": status, "reason": reason, "message": format!("{reason}!")})
    }

    fn import(conditions: &[Value]) -> Value {
        json!({
            "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.1"]},
            "status": {"conditions": conditions, "clusters": [{"cluster": "west"}]},
        })
    }

    #[test]
    fn a_service_that_is_not_imported_says_why() {
        let key = ObjectKey::new("shop", "cart");
        let objects = Objects { lacks_namespace: true, ..Objects::default() };
        let lacking = Service::of("east", &key, objects, None, None);
        assert_eq!((&*lacking.export, &*lacking.import), ("none", "no namespace"));
        assert!(lacking.problems[0].contains("--create-namespaces"), "{lacking:?}");
        assert!(of(None, None).problems[0].contains("no cluster exports it"));
        let export = import(&[
            one(Valid, "True", "Valid"),
            one(IsReady, "Unknown", "NotRenewed"),
            one(Imported, "False", "NamespaceMissing"),
        ]);
        let ready = one(IsReady, "True", "Ready");
        let conflict = one(ImportConflict, "True", "PortConflict");
        let import_of = |endpoints| import(&[ready.clone(), conflict.clone(), endpoints]);
        let found = of(Some(&export), Some(&import_of(one(EndpointsReady, "False", "NoneReady"))));
        assert_eq!((&*found.export, &*found.import), ("NotRenewed", "Ready"), "it serves");
        let problems = ["NotRenewed!", "NamespaceMissing!", "NoneReady!", "PortConflict!"];
        assert_eq!(found.problems, problems);
        assert!(found.is_wrong && !found.is_refused);
        assert_eq!((&*found.addresses[0], &*found.sources()), ("241.0.0.1", "west 0/0"));
        let partly = one(EndpointsReady, "True", Reason::PortPartlyReady.name());
        let found = of(None, Some(&import(&[ready, partly])));
        assert_eq!((&*found.import, &*found.problems[0]), ("Ready", "PortPartlyReady!"));
        assert!(!found.is_wrong, "other clusters have the port");
    }

    #[test]
    fn a_controller_of_others_need_not_say_that_an_import_is_ready() {
        let with = |ready: Option<&str>| {
            let ready = ready.map(|status| one(IsReady, status, "R"));
            let mut import = import(&ready.into_iter().collect::<Vec<_>>());
            import["spec"]["ips"] = json!(["1\u{1b}[2J"]);
            import
        };
        let refused = |import: Option<Value>| of(None, import.as_ref()).is_refused;
        assert!(refused(None) && refused(Some(with(Some("False")))));
        assert!(refused(Some(with(Some("Unknown")))));
        assert!(!refused(Some(with(Some("True")))) && !refused(Some(with(None))));
        let silent = of(None, Some(&with(None)));
        assert_eq!((&*silent.import, silent.is_wrong), ("-", false));
        assert_eq!(silent.addresses, [r"1\u{1b}[2J"]);

        let mut own = with(None);
        own["metadata"]["labels"][well_known::MANAGED_BY] = json!(well_known::CONTROLLER);
        let found = of(None, Some(&own));
        assert_eq!((&*found.import, found.is_wrong), ("Pending", true));
        assert!(found.problems[0].starts_with("no controller has looked at it yet"), "{found:?}");
    }

    #[tokio::test]
    async fn slices_that_may_not_be_read_leave_the_rest() {
        let ready = import(&[one(IsReady, "True", "Ready")]);
        let answers = [
            ScriptedAnswer::error(403),
            ScriptedAnswer::error(404),
            object(ready),
            ScriptedAnswer::error(403),
        ];
        let (cluster, _server, _file) = scripted("east", answers).await;
        let name = ServiceName::new("shop", "cart").unwrap();
        let (found, unread) = read(&cluster, &name, None).await.unwrap();
        assert!(unread.is_some(), "{found:?}");
        assert_eq!((&*found.export, &*found.import, &*found.sources()), ("none", "Ready", "west"));
    }
}
