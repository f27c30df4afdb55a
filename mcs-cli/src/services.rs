//! `mcs services`: the imports of clusters, with ready endpoints by source cluster, and the nodes that serve them.

mod nodes;
mod ready;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use clap::Args;
use kube::api::ListParams;
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
    status::{condition, service::judged},
};
use mcs_controller::clusterset::{ConditionType, well_known};

/// Show what each cluster imports: which clusters it is ready from, and which nodes serve it
///
/// Each import of each cluster is a row. READY counts the ready endpoints of each source cluster. NODES says on how many nodes
/// the agent serves it; the command asks the agent of every node, by kubectl. PROBLEMS has what controllers and agents refuse,
/// conflicts, and exports without import. NOT USED lists ClusterProperties with a value that cannot be used. PEER NOT READ has the
/// peers that a cluster cannot read: what it has of them stays as it was. Without kubeconfigs it asks the clusters of all contexts.
///
/// Exits with 0 if every import is ready, has a ready endpoint for each port and is served on every node whose agent does not leave it alone
/// by design, with 1 if not, with 3 if clusters or agents could not be asked, or cannot read a peer, and nothing is wrong elsewhere.
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
    /// The clusters and agents that did not answer, with the reason.
    unasked: Vec<String>,
    /// The ClusterProperties that cannot be used, with the reason.
    settings: Vec<String>,
    /// The peers that clusters cannot read, with the reason: what was imported from them may be old.
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
    let mut ready = by_cluster(&slices, &imports);
    let names: BTreeSet<_> = exports.keys().chain(imports.keys()).collect();
    let service = |key: &(String, String)| {
        let (export, import) = (exports.get(key), imports.get(key));
        Service::of(cluster.id.as_str(), key, export, import, ready.remove(key), views)
    };
    // A caller without the right to read them gets the other results.
    let settings = settings::problems(cluster).await.unwrap_or_default();
    let settings = settings.iter().map(|one| format!("{}: {one}", cluster.id));
    // Who may read services alone sees no peers.
    let peers = cluster.list_if_readable(PEERS, None, &ListParams::default()).await?;
    let unread = peers.iter().filter_map(|peer| unread(cluster.id.as_str(), peer));
    Ok(Services {
        services: names.into_iter().map(service).collect(),
        unasked: vec![],
        settings: settings.collect(),
        unread: unread.collect(),
    })
}

/// Why a cluster does not read a peer, if its controller says so.
fn unread(cluster: &str, peer: &Value) -> Option<String> {
    let why = ["Connected", "Synced", "Fresh"].into_iter().find_map(|name| {
        let condition = condition(peer, name).filter(|one| one["status"] == "False")?;
        Some(format!("{name} is False: {}", condition["message"].as_str().unwrap_or_default()))
    })?;
    let id = peer["spec"]["clusterId"].as_str().unwrap_or_default();
    Some(one_line(&format!("{cluster}: peer {id}: {why}")))
}

fn by_name(objects: Vec<Value>) -> BTreeMap<(String, String), Value> {
    objects.into_iter().map(|object| (key_of(&object), object)).collect()
}

fn key_of(object: &Value) -> (String, String) {
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
        let nodes = views.filter(|_| has_address).map(|views| views.of(key));
        // The other conditions of this controller's imports report the same problem.
        let accepted = import.and_then(|import| condition(import, ConditionType::Accepted.name()));
        let refused = accepted.filter(|one| one["status"] != "True" && problems.is_empty());
        problems.extend(refused.and_then(|one| one["message"].as_str()).map(str::to_owned));
        problems.extend(nodes.iter().flat_map(|nodes| nodes.reasons.iter().cloned()));
        let is_wrong = import.is_none()
            || is_false(ConditionType::Ready)
            || is_false(ConditionType::EndpointsReady)
            || is_false(ConditionType::Accepted)
            || nodes.as_ref().is_some_and(|nodes| !nodes.without.is_empty());
        // Other controllers need not write condition `Ready`.
        let is_silent = import.is_some_and(|import| condition(import, "Ready").is_none());
        let import = if is_silent { "-".to_owned() } else { status.import };
        Self {
            cluster: cluster.to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
            kind: kind.unwrap_or_default().to_owned(),
            addresses: status.addresses,
            import,
            export: status.export,
            ready: ready.unwrap_or_default(),
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_peer_that_cannot_be_read_is_told() {
        let peer = |connected: &str, synced: &str| {
            let one = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": "401"});
            let conditions = json!([one("Connected", connected), one("Synced", synced)]);
            json!({"spec": {"clusterId": "west"}, "status": {"conditions": conditions}})
        };
        assert_eq!(unread("east", &peer("True", "True")), None);
        assert_eq!(unread("east", &peer("Unknown", "Unknown")), None, "it has just begun");
        let said = unread("east", &peer("False", "False")).unwrap();
        assert_eq!(said, "east: peer west: Connected is False: 401");
        assert!(unread("east", &peer("True", "False")).unwrap().contains("Synced is False"));
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
        assert!(of(None).is_wrong, "it is exported, and not imported");
    }
}
