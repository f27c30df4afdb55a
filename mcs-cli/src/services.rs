//! `mcs services`: the imports of clusters, with ready endpoints by source cluster, and on how many nodes they are served.

pub(crate) mod nodes;
pub(crate) mod ready;
pub(crate) mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use clap::Args;
use jiff::Timestamp;
use mcs_kube::{
    ObjectKey, one_line,
    program::{self, OutputArgs, Style},
    told,
};
use serde::Serialize;
use serde_json::Value;

use self::{
    nodes::{AgentViews, Nodes},
    ready::by_cluster,
    service::{Objects, Service},
};
use crate::{
    cluster::{Cluster, EXPORTS, IMPORTS, PEERS},
    contexts,
    exit::UNASKED,
    fleet,
    kubeconfig::ClusterArgs,
    settings,
    status::{self, condition},
};
use mcs_controller::core::clusterset::well_known;

/// Show what each cluster imports: which clusters it is ready from, and on how many nodes it is served
///
/// Each import of each cluster is a row. READY counts the ready endpoints of each source cluster. NODES says on how many
/// nodes the agent serves it: the command asks the agent of every node, by kubectl. `mcs explain` names the nodes.
/// PROBLEMS has what controllers and agents refuse, conflicts, and exports without import. NOT USED lists
/// ClusterProperties with a value that cannot be used. PEER NOT READ has the peers that a cluster cannot read, or of
/// which it is not known: what it has of them stays as it was. NOT ASKED has the clusters and agents that did not answer,
/// and what you may not read. Without kubeconfigs it asks the clusters of all contexts.
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
    let namespace = command.namespace.as_deref();
    let read = fleet::each(&contexts.clusters, async |cluster| {
        let views =
            if command.no_nodes { None } else { Some(nodes::ask(cluster, namespace).await) };
        let found = read(cluster, namespace, views.as_ref()).await;
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
    let slices = cluster.slices(namespace, well_known::SERVICE_NAME).await?;
    let mut ready = by_cluster(&slices, imports.values());
    let names: BTreeSet<_> = exports.keys().chain(imports.keys()).collect();
    let service = |key: &ObjectKey| {
        let (export, import) = (exports.get(key), imports.get(key));
        let objects = Objects { export, import, lacks_namespace: false };
        let ready = Some(ready.remove(key).unwrap_or_default());
        Service::of(cluster.id.as_str(), key, objects, ready, views)
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

fn by_name(objects: Vec<Value>) -> BTreeMap<ObjectKey, Value> {
    objects.into_iter().map(|object| (key_of(&object), object)).collect()
}

pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

fn table(all: &Services, style: Style) -> anyhow::Result<()> {
    let rows = all.services.iter().map(|one| {
        let nodes = one.nodes.as_ref().map(Nodes::counted);
        let mut row = vec![
            format!("{}/{}", one.namespace, one.name),
            one.cluster.clone(),
            one.import.clone(),
            one.sources(),
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
}
