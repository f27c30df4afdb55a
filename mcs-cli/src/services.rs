//! `mcs services`: the imports of clusters, with ready endpoints by source cluster, and the nodes that serve them.

mod nodes;
pub(crate) mod ready;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use clap::Args;
use jiff::Timestamp;
use mcs_kube::{
    one_line,
    program::{self, OutputArgs, Style},
    told,
};
use serde::Serialize;
use serde_json::Value;

use self::{
    nodes::{AgentViews, Nodes},
    ready::{Ready, by_cluster},
};
use crate::{
    cluster::{Cluster, EXPORTS, IMPORTS, PEERS, SLICES},
    contexts,
    exit::UNASKED,
    fleet,
    kubeconfig::ClusterArgs,
    settings,
    status::{self, condition, service::judged},
};
use mcs_controller::clusterset::{ConditionType, well_known};

/// Show what each cluster imports: which clusters it is ready from, and which nodes serve it
///
/// Each import of each cluster is a row. READY counts the ready endpoints of each source cluster. NODES says on how many nodes
/// the agent serves it; the command asks the agent of every node, by kubectl. PROBLEMS has what controllers and agents refuse,
/// conflicts, and exports without import. NOT USED lists ClusterProperties with a value that cannot be used. PEER NOT READ has the
/// peers that a cluster cannot read, or of which it is not known: what it has of them stays as it was. NOT ASKED has the clusters and agents
/// that did not answer, and what you may not read. Without kubeconfigs it asks the clusters of all contexts.
///
/// Exits with 0 if every import is ready, has a ready endpoint for each port and is served on every node whose agent does not leave it alone
/// by design, with 1 if not, with 3 if PEER NOT READ or NOT ASKED has something, and nothing is wrong elsewhere.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs services
  mcs services -n shop --context east --context west
  mcs services -o json | jq -r '.services[] | select(.problems != []) | .name'")]
pub(super) struct ServicesCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// Only services of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Do not ask the agents: column NODES is empty
    #[arg(long)]
    no_nodes: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// The result. `services -o json`: fields are added, never renamed.
#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names in JSON")]
struct Services {
    services: Vec<Service>,
    /// The clusters and agents that did not answer, and what the caller may not read, with the reason.
    unasked: Vec<String>,
    /// The ClusterProperties that cannot be used, with the reason.
    settings: Vec<String>,
    /// The peers that clusters cannot read, or of which it is not known, with the reason: what was imported from them may be old.
    unread: Vec<String>,
}

/// A service in one cluster.
#[derive(Debug, Serialize)]
struct Service {
    cluster: String,
    namespace: String,
    name: String,
    /// `ClusterSetIP` or `Headless`; empty without import.
    #[serde(rename = "type")]
    kind: String,
    addresses: Vec<String>,
    /// The reason of the import's most important condition; `none`: exported and not imported.
    import: String,
    /// The same for the cluster's own export.
    export: String,
    /// The endpoints of each source cluster.
    ready: BTreeMap<String, Ready>,
    /// Absent if no agent was asked.
    nodes: Option<Nodes>,
    /// The problems.
    problems: Vec<String>,
    #[serde(skip)]
    is_wrong: bool,
}

pub(super) fn run(command: &ServicesCommand) -> anyhow::Result<ExitCode> {
    let read = || program::block_on(read_all(command));
    let found = command.output.show(read, table)?;
    let is_whole = found.unasked.is_empty() && found.unread.is_empty();
    Ok(match (found.services.iter().any(|one| one.is_wrong), is_whole) {
        (true, _) => ExitCode::FAILURE,
        (false, false) => UNASKED.into(),
        (false, true) => ExitCode::SUCCESS,
    })
}

async fn read_all(command: &ServicesCommand) -> anyhow::Result<Services> {
    let contexts = contexts::open(&command.clusters.named()?).await?;
    let mut all = Services::default();
    for one in contexts.unasked {
        all.unasked.push(format!("{}: {}", one.name, one.error));
    }
    let read = fleet::each(&contexts.clusters, async |cluster| {
        let views = if command.no_nodes { None } else { Some(nodes::ask(cluster).await) };
        let found = read(cluster, command.namespace.as_deref(), views.as_ref()).await;
        (cluster, views, found)
    });
    for (cluster, views, found) in read.await {
        match found {
            Ok(found) => {
                all.services.extend(found.services);
                all.settings.extend(found.settings);
                all.unread.extend(found.unread);
                all.unasked.extend(found.unasked);
            }
            Err(error) => all.unasked.push(format!("{}: {}", cluster.id, told(&error))),
        }
        let unasked = views.into_iter().flat_map(|views| views.unasked);
        all.unasked.extend(unasked.map(|one| format!("{}: {one}", cluster.id)));
    }
    all.services.sort_by(|a, b| {
        (&a.namespace, &a.name, &a.cluster).cmp(&(&b.namespace, &b.name, &b.cluster))
    });
    Ok(all)
}

async fn read(
    cluster: &Cluster,
    namespace: Option<&str>,
    views: Option<&AgentViews>,
) -> anyhow::Result<Services> {
    let exports = by_name(cluster.list_in(EXPORTS, namespace, "").await?);
    let imports = by_name(cluster.list_in(IMPORTS, namespace, "").await?);
    let slices = cluster.list_in(SLICES, namespace, well_known::SERVICE_NAME).await?;
    let mut ready = by_cluster(&slices, imports.values());
    let names: BTreeSet<_> = exports.keys().chain(imports.keys()).collect();
    let service = |key: &(String, String)| {
        let (export, import) = (exports.get(key), imports.get(key));
        Service::of(cluster.id.as_str(), key, export, import, ready.remove(key), views)
    };
    let (id, mut unasked) = (cluster.id.as_str(), Vec::new());
    // A caller without the right to read these gets the other results.
    let mut or_unasked = |what: &str, read: anyhow::Result<_>| {
        read.unwrap_or_else(|error| {
            unasked.push(format!("{id}: {what}: {}", told(&error)));
            vec![]
        })
    };
    let settings =
        or_unasked("whether its settings can be used", settings::problems(cluster).await);
    let peers = cluster.list_if_served(PEERS).await;
    let now = Timestamp::now();
    let peers = peers.map(|peers| peers.iter().filter_map(|peer| unread(id, peer, now)).collect());
    let unread = or_unasked("whether it reads its peers", peers);
    Ok(Services {
        services: names.into_iter().map(service).collect(),
        unasked,
        settings: settings.iter().map(|one| format!("{id}: {one}")).collect(),
        unread,
    })
}

/// Why a cluster does not read a peer, or why that is not known, as far as its controller says.
fn unread(cluster: &str, peer: &Value, now: Timestamp) -> Option<String> {
    let is_false = |name: &&str| condition(peer, name).is_some_and(|one| one["status"] == "False");
    let failing = ["Connected", "Synced", "Fresh"].into_iter().find(is_false);
    let why = match failing.and_then(|name| Some((name, condition(peer, name)?))) {
        Some((name, one)) => format!("{name} is False: {}", status::text(&one["message"])),
        // Other problems cost nothing that was imported.
        None if peer["status"]["conditions"].is_null() => status::problems(peer).pop()?,
        None => status::known::unknown(peer, now).into_iter().next()?,
    };
    let id = peer["spec"]["clusterId"].as_str().unwrap_or_default();
    Some(one_line(&format!("{cluster}: peer {id}: {why}")))
}

/// Namespace and name.
type Key = (String, String);

fn by_name(objects: Vec<Value>) -> BTreeMap<Key, Value> {
    objects.into_iter().map(|object| (key_of(&object), object)).collect()
}

pub(crate) fn key_of(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl Service {
    fn of(
        cluster: &str,
        key: &(String, String),
        export: Option<&Value>,
        import: Option<&Value>,
        ready: Option<BTreeMap<String, Ready>>,
        views: Option<&AgentViews>,
    ) -> Self {
        let (namespace, name) = key;
        let status = judged(namespace, true, export, import);
        let mut problems = status.problems;
        let is_false = |kind: ConditionType| {
            let condition = import.and_then(|import| condition(import, kind.name()));
            condition.is_some_and(|condition| condition["status"] == "False")
        };
        let kind = import.and_then(|import| import["spec"]["type"].as_str());
        // An import without address is served by DNS only.
        let has_address = kind == Some("ClusterSetIP") && !status.addresses.is_empty();
        let nodes = views.filter(|_| has_address).and_then(|views| views.of(key));
        let mut ready = ready.unwrap_or_default();
        // One without slices has no endpoint here.
        for cluster in &status.clusters {
            ready.entry(cluster.clone()).or_default();
        }
        // The other conditions of this controller's imports report the same problem.
        let accepted = import.and_then(|import| condition(import, ConditionType::Accepted.name()));
        let refused = accepted.filter(|one| one["status"] != "True" && problems.is_empty());
        problems.extend(refused.and_then(|one| one["message"].as_str()).map(str::to_owned));
        let unready = import.and_then(status::unready);
        if problems.is_empty() {
            problems.extend(unready.iter().map(|unready| unready.message.clone()));
        }
        problems.extend(nodes.iter().flat_map(|nodes| nodes.reasons.iter().cloned()));
        let is_wrong = import.is_none()
            || unready.is_some()
            || is_false(ConditionType::EndpointsReady)
            || is_false(ConditionType::Accepted)
            || nodes.as_ref().is_some_and(|nodes| !nodes.without.is_empty());
        // Other controllers need not write condition `Ready`.
        let is_silent = import
            .is_some_and(|import| condition(import, "Ready").is_none() && !status::is_own(import));
        let import = if is_silent { "-".to_owned() } else { status.import };
        Self {
            cluster: cluster.to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
            kind: kind.unwrap_or_default().to_owned(),
            addresses: status.addresses,
            import,
            export: status.export,
            ready,
            nodes,
            problems: problems.iter().map(|problem| one_line(problem)).collect(),
            is_wrong,
        }
    }

    /// `east 3/3 west 0/2`.
    fn ready(&self) -> String {
        let counts = self.ready.iter().map(|(cluster, ready)| {
            let cluster = if cluster.is_empty() { "?" } else { cluster };
            format!("{} {}/{}", one_line(cluster), ready.ready, ready.total)
        });
        counts.collect::<Vec<_>>().join(" ")
    }
}

fn table(all: &Services, style: Style) -> anyhow::Result<()> {
    let rows = all.services.iter().map(|one| {
        let nodes = one.nodes.as_ref().map(|nodes| nodes.text(style.wide));
        let mut row = vec![
            format!("{}/{}", one.namespace, one.name),
            one.cluster.clone(),
            one.import.clone(),
            one.ready(),
            nodes.unwrap_or_else(|| "-".to_owned()),
        ];
        if style.wide {
            row.extend([one.export.clone(), one.addresses.join(",")]);
        }
        row.push(one.problems.join("; "));
        row
    });
    let mut header = vec!["SERVICE", "CLUSTER", "IMPORT", "READY", "NODES"];
    if style.wide {
        header.extend(["EXPORT", "ADDRESSES"]);
    }
    header.push("PROBLEMS");
    style.table(&header, rows)?;
    let lists =
        [("NOT USED", &all.settings), ("PEER NOT READ", &all.unread), ("NOT ASKED", &all.unasked)];
    for (head, lines) in lists {
        if !lines.is_empty() {
            program::print("")?;
            style.table(&[head], lines.iter().map(|one| vec![one.clone()]))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::scripted;

    #[test]
    fn a_peer_that_is_not_read_is_told() {
        let of = |but: &str, status: &str| {
            let conditions = status::known::tests::conditions(but, status);
            let peer = json!({"spec": {"clusterId": "west"}, "status": {"conditions": conditions}});
            unread("east", &peer, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(of("", ""), None);
        let said = of("Connected", "False").unwrap();
        assert_eq!(said, "east: peer west: Connected is False: why");
        assert!(of("Synced", "False").unwrap().contains("Synced is False"));
        assert!(of("Fresh", "Unknown").unwrap().contains("Fresh is not known yet: why"));
        assert_eq!(of("Accepted", "False"), None, "the spec of before counts");
        let new = json!({"spec": {"clusterId": "west"}});
        let said = unread("east", &new, Timestamp::UNIX_EPOCH).unwrap();
        assert!(said.contains("no controller has looked at it yet"), "{said}");
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_told() {
        let lists = std::iter::repeat_with(|| ScriptedAnswer::list("1", [])).take(3);
        let refused = std::iter::repeat_with(|| ScriptedAnswer::error(403)).take(2);
        let (cluster, _server, _file) = scripted("east", lists.chain(refused)).await;
        let found = read(&cluster, None, None).await.unwrap();
        let [settings, peers] = &found.unasked[..] else { panic!("{found:?}") };
        assert!(settings.starts_with("east: whether its settings can be used: "), "{settings}");
        assert!(peers.starts_with("east: whether it reads its peers: "), "{peers}");
    }

    #[test]
    fn a_service_says_what_is_wrong_with_it() {
        let one = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": format!("{kind}!")});
        let import = |conditions: Value| {
            json!({
                "spec": {"type": "ClusterSetIP", "ips": ["241.0.0.1"]},
                "status": {"conditions": conditions},
            })
        };
        let key = ("shop".to_owned(), "cart".to_owned());
        let of = |import: Option<&Value>| Service::of("east", &key, None, import, None, None);
        let fine = of(Some(&import(json!([one("Ready", "True")]))));
        assert_eq!((&*fine.import, fine.is_wrong, fine.problems.len()), ("R", false, 0));
        let endpoints = ConditionType::EndpointsReady.name();
        let none = of(Some(&import(json!([one("Ready", "True"), one(endpoints, "False")]))));
        assert_eq!((none.is_wrong, &*none.problems), (true, &[format!("{endpoints}!")][..]));
        assert_eq!(of(Some(&import(json!([])))).import, "-", "another controller writes it");
        let mut own = import(json!([]));
        own["metadata"]["labels"][well_known::MANAGED_BY] = json!(well_known::CONTROLLER);
        own["status"]["clusters"] = json!([{"cluster": "west"}]);
        let found = of(Some(&own));
        assert_eq!((&*found.import, found.is_wrong), ("Pending", true));
        assert!(found.problems[0].starts_with("no controller has looked at it yet"), "{found:?}");
        assert_eq!(found.ready(), "west 0/0", "it has no slices");
        assert!(of(None).is_wrong, "it is exported, and not imported");
    }
}
