//! Reads the links of a cluster: lists from its API server, and the table of each agent by kubectl.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::anyhow;
use futures_util::future::join;
use kube::api::ListParams;
use mcs_kube::{report::ServiceTables, told};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Difference,
    facts::{Facts, Table, Unread, What},
};
use crate::{
    agent_pod::{self, AgentPod, PATIENCE, within},
    check::{missing_right, nodes::Proof, pods::source::Controller, reports::NodeStatus},
    cluster::{
        Cluster, EVENTS, EXPORTED, EXPORTS, IMPORTS, Kind, NAMESPACES, NODES, PEERS, PODS,
        PROPERTIES, SERVICES, SLICES,
    },
    fleet,
    services::key_of,
};

/// The agents of a cluster that are asked at a time.
const AGENTS: usize = 16;
/// The time for all agents of a cluster, and how much of it each has at least where there are many.
const LIMIT: Duration = Duration::from_secs(15);
const EACH: Duration = Duration::from_millis(150);
/// The lists of a cluster that are read at a time.
const LISTS: usize = 4;
/// The namespaces whose pods are read.
const NAMESPACES_OF_PODS: usize = 200;
/// The agents that are asked a second time.
const AGAIN: usize = 16;

/// What was read of a cluster.
pub(in crate::check) struct Reading {
    pub(in crate::check) facts: Facts,
    /// What agents say of themselves, by node.
    pub(in crate::check) statuses: Vec<(String, anyhow::Result<NodeStatus>)>,
    /// What they have tried.
    pub(in crate::check) proof: Proof,
}

/// Reads everything. `mailbox`: that of the cluster; none if it is on a hub. `controllers`: those that agents ask for large
/// answers; `None`: agents try nothing.
pub(in crate::check) async fn read(
    cluster: &Cluster,
    mailbox: Option<&str>,
    controllers: Option<&[Controller]>,
) -> Reading {
    let mut reading = objects(cluster, mailbox).await;
    if let Some(controllers) = controllers {
        reading.proof = Proof::of(cluster, &reading.facts, controllers).await;
    }
    let pods = agent_pod::pods(cluster, None).await;
    let mut nodes: BTreeSet<String> = match cluster.list(NODES).await {
        Ok(nodes) => nodes.iter().map(|node| key_of(node).name.to_string()).collect(),
        Err(error) => {
            let unread = unread(&error).within("nodes without agent are not seen");
            reading.facts.tables.insert("-".to_owned(), Err(unread));
            BTreeSet::new()
        }
    };
    match pods {
        Ok(mut pods) => {
            pods.retain(|pod| pod.obstacle.is_none());
            nodes.retain(|node| !pods.iter().any(|pod| pod.node == *node));
            let many = u32::try_from(pods.len()).unwrap_or(u32::MAX);
            ask(cluster, &pods, LIMIT.max(EACH * many), &mut reading).await;
            let none = |node| (node, Err(Unread::unknown("no agent is ready")));
            reading.facts.tables.extend(nodes.into_iter().map(none));
        }
        Err(error) => {
            reading.facts.tables.insert("-".to_owned(), Err(unread(&error)));
        }
    }
    reading
}

/// Reads once more what has differed, and the warnings about it.
pub(in crate::check) async fn again(
    cluster: &Cluster,
    mailbox: Option<&str>,
    differences: &[Difference],
) -> Facts {
    let mut reading = objects(cluster, mailbox).await;
    let own = differences.iter().filter(|one| one.cluster == cluster.id.as_str());
    let nodes: BTreeSet<_> = own.filter_map(|one| one.node.as_deref()).collect();
    if !nodes.is_empty() {
        let mut pods = agent_pod::pods(cluster, None).await.unwrap_or_default();
        pods.retain(|pod| pod.obstacle.is_none() && nodes.contains(&*pod.node));
        pods.truncate(AGAIN);
        ask(cluster, &pods, PATIENCE, &mut reading).await;
    }
    let services = differences.iter().filter_map(|one| one.service.split_once('/'));
    let namespaces: BTreeSet<_> = services.map(|(namespace, _)| namespace).collect();
    let params = ListParams::default().fields("type=Warning");
    let listed = fleet::each_of(LISTS, namespaces, async |namespace| {
        cluster.list_if_readable(EVENTS, Some(namespace), &params).await.unwrap_or_default()
    });
    let events = listed.await.into_iter().flatten().collect();
    reading.facts.objects.insert(What::Events, Ok(events));
    reading.facts
}

async fn objects(cluster: &Cluster, mailbox: Option<&str>) -> Reading {
    let lists: [(What, Kind, Option<&str>); 8] = [
        (What::Exports, EXPORTS, None),
        (What::Services, SERVICES, None),
        (What::Slices, SLICES, None),
        (What::Published, EXPORTED, mailbox),
        (What::Peers, PEERS, None),
        (What::Imports, IMPORTS, None),
        (What::Namespaces, NAMESPACES, None),
        (What::Properties, PROPERTIES, None),
    ];
    let read = fleet::each_of(LISTS, lists, async |(what, kind, namespace)| {
        if what == What::Published && mailbox.is_none() {
            return (what, Err(Unread::unknown("the mailbox is on a hub, which is not read")));
        }
        let listed = cluster.list_in(kind, namespace, "").await;
        (what, listed.map_err(|error| unread(&error)))
    });
    let mut objects: BTreeMap<_, _> = read.await.into_iter().collect();
    let exports = objects.get(&What::Exports).and_then(|read| read.as_ref().ok());
    let namespaces = exports.into_iter().flatten().map(|export| key_of(export).namespace);
    let mut namespaces: BTreeSet<_> = namespaces.collect();
    let is_whole = namespaces.len() <= NAMESPACES_OF_PODS;
    while namespaces.len() > NAMESPACES_OF_PODS {
        namespaces.pop_last();
    }
    let listed = fleet::each_of(LISTS, namespaces, async |namespace| {
        cluster.list_in(PODS, Some(&namespace), "").await
    });
    let listed: anyhow::Result<Vec<Vec<Value>>> = listed.await.into_iter().collect();
    let pods = match listed {
        Ok(_) if !is_whole => Err(Unread::unknown(format!(
            "pods of more than {NAMESPACES_OF_PODS} namespaces are not read"
        ))),
        Ok(listed) => Ok(listed.into_iter().flatten().collect()),
        Err(error) => Err(unread(&error)),
    };
    objects.insert(What::Pods, pods);
    let facts = Facts { cluster: cluster.id.to_string(), objects, ..Facts::default() };
    Reading { facts, statuses: vec![], proof: Proof::default() }
}

/// Asks these agents for their state and their tables, and lets them try what there is to try.
async fn ask(cluster: &Cluster, pods: &[AgentPod], limit: Duration, reading: &mut Reading) {
    let end = Instant::now() + limit;
    let asked = fleet::each_of(AGENTS, pods, async |pod: &AgentPod| {
        // It is short: one that does not give it is not asked for its tables, which can be long.
        let status = within(PATIENCE, end, pod.status(cluster)).await;
        let services = match &status {
            Ok(_) => within(limit, end, pod.read::<ServiceTables>(cluster, &["services"])).await,
            Err(error) => Err(anyhow!(told(error))),
        };
        (pod.node.clone(), status, services)
    });
    let (asked, ()) = join(asked, reading.proof.ask(cluster, pods, end)).await;
    for (node, status, services) in asked {
        let own = status.as_ref().ok().and_then(NodeStatus::own_report);
        let rejections = own.map(|report| report.common.rejections.to_vec()).unwrap_or_default();
        let table = services.map(|services| Table { services, rejections });
        let table = table.map_err(|error| Unread::unknown(told(&error)));
        reading.facts.tables.insert(node.clone(), table);
        reading.statuses.push((node, status));
    }
}

fn unread(error: &anyhow::Error) -> Unread {
    match missing_right(error) {
        Some(right) => Unread::unknown(format!(
            "not checked, as you may not {right}: let somebody run `check` who may"
        )),
        None => Unread { why: told(error), is_wrong: true },
    }
}
