//! Mailboxes on a hub: a namespace for each cluster, which only its controller writes, and an account for each cluster,
//! which reads all of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    Direction, LinkArgs, LinkCommand, Linked, Mailbox, Publisher,
    credentials::{Credentials, kubeconfig_secret, take_rights},
    joined, secret_name,
    sides::{Pairs, Side},
};
use crate::{
    cluster::{
        CLUSTER_BINDINGS, CLUSTER_ROLES, Cluster, EXPORTED, LEASES, NAMESPACES, PEERS, ROLES,
        SECRETS,
    },
    fleet,
    kubeconfig::KubeconfigArg,
};
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::told;

/// The name of the hub in place of a cluster id.
const HUB: &str = "hub";
/// The Role of the controller that publishes.
const WRITER: &str = "mcs-mailbox-writer";
/// The `ClusterRole` of every controller, and with the id of its cluster the name of its binding.
const MEMBER: &str = "mcs-hub-reader";
/// The ServiceAccount of a controller in its mailbox. No cluster has an id with a dot.
const ACCOUNT: &str = "publisher.mcs-controller";
/// The Secret with its kubeconfig, as the chart's value `mailbox.secret` names it.
pub(super) const SECRET: &str = "mailbox";

/// The namespace of a cluster's mailbox on the hub.
pub(super) fn mailbox(publisher: &ClusterId) -> String {
    format!("mcs-{publisher}")
}

/// The account of a cluster on the hub, as namespace and name.
pub(super) fn account(cluster: &ClusterId) -> String {
    format!("{}/{ACCOUNT}", mailbox(cluster))
}

/// The first of these ClusterPeers whose mailbox is on a hub: `link --hub` gives it the Secret of the cluster's own mailbox, and
/// a namespace with its id. An account that was made by hand has another Secret.
pub(crate) fn peer_on_hub(peers: &[Value]) -> Option<&Value> {
    peers.iter().find(|peer| {
        let spec = &peer["spec"];
        let of_id = spec["clusterId"].as_str().map(|id| format!("mcs-{id}"));
        let of_id = of_id.filter(|mailbox| mailbox != super::MAILBOX);
        spec["kubeconfigSecretRef"]["name"] == SECRET
            || of_id.is_some_and(|mailbox| spec["mailbox"] == *mailbox)
    })
}

/// Fails if a ClusterPeer of a cluster leads to a hub that is not given. `is_meant`: whether the command is about the peer with
/// this id.
pub(super) async fn ensure_hub(
    clusters: &[&Cluster],
    is_given: bool,
    is_meant: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    if is_given {
        return Ok(());
    }
    let found = fleet::each(clusters, async |cluster: &&Cluster| {
        let mut peers = cluster.list_if_served(PEERS).await?;
        peers.retain(|peer| is_meant(peer["spec"]["clusterId"].as_str().unwrap_or_default()));
        match peer_on_hub(&peers) {
            Some(peer) => Err(needs_hub(&cluster.id, peer)),
            None => Ok(()),
        }
    });
    fleet::all_of(found.await).map(drop)
}

pub(crate) fn needs_hub(reader: &ClusterId, peer: &Value) -> anyhow::Error {
    let spec = &peer["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    anyhow::anyhow!(
        "cluster {reader} reads {} on a hub (its ClusterPeer names mailbox {} and Secret {}): give the hub's kubeconfig with \
         --hub. Nothing was changed",
        text(&spec["clusterId"]),
        text(&spec["mailbox"]),
        text(&spec["kubeconfigSecretRef"]["name"]),
    )
}

/// The Secret with which a cluster publishes on a hub, if it has one.
pub(super) async fn secret_of(
    command: &LinkCommand,
    member: &Cluster,
) -> anyhow::Result<Option<Value>> {
    member.get(SECRETS, Some(&command.link.namespace), SECRET).await
}

/// The hub, if there is one.
pub(crate) async fn open(argument: Option<&KubeconfigArg>) -> anyhow::Result<Option<Cluster>> {
    let Some(argument) = argument else { return Ok(None) };
    let hub = Cluster::open_as(argument, HUB.parse()?).await?;
    hub.ensure_served(EXPORTED).await.with_context(|| {
        format!(
            "the hub at {} needs the types of mcs-controller: kubectl apply --filename \
             deploy/helm/mcs-controller/crds",
            hub.server
        )
    })?;
    Ok(Some(hub))
}

/// Fails if another cluster of this id publishes in the mailbox.
pub(super) async fn ensure_own(publisher: &Publisher<'_>) -> anyhow::Result<()> {
    let Publisher { cluster: Cluster { id, .. }, uid, mailbox, .. } = publisher;
    let Mailbox { host, namespace } = mailbox;
    let lease = host.get(LEASES, Some(namespace), well_known::PUBLISHER_LEASE).await?;
    let said = lease
        .as_ref()
        .and_then(|lease| lease["metadata"]["annotations"][well_known::CLUSTER_UID].as_str());
    ensure!(
        said.is_none_or(|said| said == uid),
        "another cluster {id} has published in namespace {namespace} of the hub: its uid was {}, and is {uid}. If {id} was \
         made anew, give --replace; if these are two clusters, give one of them another id. Nothing was changed",
        said.unwrap_or_default(),
    );
    Ok(())
}

fn labels() -> Value {
    json!({well_known::MANAGED_BY: well_known::CONTROLLER})
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// The read rights of each controller. RBAC has no labels, so they include all slices of the hub.
fn member_role() -> Value {
    let verbs = ["list", "watch"];
    let mut leases = rule("coordination.k8s.io", "leases", &verbs);
    leases["resourceNames"] = json!([well_known::PUBLISHER_LEASE]);
    let rules = json!([
        rule(well_known::GROUP, "exportedservices", &verbs),
        rule("discovery.k8s.io", "endpointslices", &verbs),
        leases,
    ]);
    json!({"metadata": {"name": MEMBER, "labels": labels()}, "rules": rules})
}

/// Creates a mailbox for each cluster. Its controller may write it, and read the others.
pub(super) async fn let_in(
    command: &LinkCommand,
    publishers: &[Publisher<'_>],
) -> anyhow::Result<Vec<Linked>> {
    if let (Some(first), false) = (publishers.first(), command.rotate) {
        first.mailbox.host.apply(CLUSTER_ROLES, member_role()).await?;
    }
    let let_in = fleet::each(publishers, async |publisher| {
        // `rotate` adds no cluster to the hub.
        if command.rotate && secret_of(command, publisher.cluster).await?.is_none() {
            return Ok(None);
        }
        let id = &publisher.cluster.id;
        let others = publishers.iter().map(|one| &one.cluster.id).filter(|other| *other != id);
        let read = others.filter(|other| !command.rotate && command.scope.has(id, other));
        let read: BTreeSet<_> = read.map(ToString::to_string).collect();
        let result = if command.scope.lets_in(id) {
            let_one_in(command, publisher, read).await.map(Some)
        } else if read.is_empty() {
            Ok(None)
        } else {
            let_read(publisher, read).await.map(|()| None)
        };
        // The others are let in.
        anyhow::Ok(result.unwrap_or_else(|error| {
            let left = vec![format!("let cluster {id} in on the hub: {}", told(&error))];
            Some(Linked { left, ..done(&command.link, id, &publisher.mailbox, None) })
        }))
    });
    Ok(fleet::all_of(let_in.await)?.into_iter().flatten().collect())
}

/// Lets a member read other mailboxes too.
async fn let_read(publisher: &Publisher<'_>, mut read: BTreeSet<String>) -> anyhow::Result<()> {
    let (id, host) = (&publisher.cluster.id, publisher.mailbox.host);
    let binding = host.get(CLUSTER_BINDINGS, None, &binding_name(id)).await?;
    let had = binding.as_ref().map(reads).unwrap_or_default();
    if read.is_subset(&had) && binding.is_some() {
        return Ok(());
    }
    read.extend(had);
    set_reads(host, id, &read).await
}

async fn let_one_in(
    command: &LinkCommand,
    publisher: &Publisher<'_>,
    read: BTreeSet<String>,
) -> anyhow::Result<Linked> {
    let Publisher { cluster: publisher, mailbox, .. } = publisher;
    let Mailbox { host, namespace } = mailbox;
    let metadata = json!({"name": namespace, "labels": labels()});
    host.apply(NAMESPACES, json!({"metadata": metadata})).await?;
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rules = json!([
        rule(well_known::GROUP, "exportedservices", &verbs),
        rule("discovery.k8s.io", "endpointslices", &verbs),
        rule("coordination.k8s.io", "leases", &verbs),
    ]);
    let metadata = json!({"namespace": namespace, "name": WRITER, "labels": labels()});
    host.apply(ROLES, json!({"metadata": metadata, "rules": rules})).await?;
    let credentials = Credentials::make(mailbox, ACCOUNT, WRITER, command.terms(host)).await?;
    let binding = host.get(CLUSTER_BINDINGS, None, &binding_name(&publisher.id)).await?;
    let mut reads = binding.as_ref().map(reads).unwrap_or_default();
    reads.extend(read);
    set_reads(host, &publisher.id, &reads).await?;
    let former = publisher.get(SECRETS, Some(&command.link.namespace), SECRET).await?;
    let mut secret = kubeconfig_secret(&command.link.namespace, SECRET);
    let all = ByteString(well_known::ALL_MAILBOXES.as_bytes().to_vec());
    secret["data"][well_known::MAILBOXES] = json!(all);
    let kept = credentials.store(publisher, secret, former.as_ref()).await?;
    let note = format!(
        "the controller of cluster {} publishes there with mailbox.namespace={namespace} and mailbox.secret={SECRET} \
         in the values of its chart",
        publisher.id
    );
    let note = Some(note).filter(|_| !command.rotate);
    let warning = joined(note, kept);
    Ok(Linked {
        expires: credentials.expires(),
        ..done(&command.link, &publisher.id, mailbox, warning)
    })
}

fn binding_name(id: &ClusterId) -> String {
    format!("{MEMBER}-{id}")
}

/// The ids of the clusters that a cluster reads, from the binding of its account.
fn reads(binding: &Value) -> BTreeSet<String> {
    let said = binding["metadata"]["annotations"][well_known::READS].as_str().unwrap_or_default();
    said.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// Grants a cluster the right to read the mailboxes of a hub, or revokes it if the cluster reads none.
async fn set_reads(hub: &Cluster, id: &ClusterId, reads: &BTreeSet<String>) -> anyhow::Result<()> {
    let name = binding_name(id);
    if reads.is_empty() {
        return hub.delete(CLUSTER_BINDINGS, None, &name).await;
    }
    let reads: Vec<_> = reads.iter().map(String::as_str).collect();
    let annotations = json!({well_known::READS: reads.join(",")});
    let binding = json!({
        "metadata": {"name": name, "labels": labels(), "annotations": annotations},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": MEMBER},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": mailbox(id)}],
    });
    hub.apply(CLUSTER_BINDINGS, binding).await
}

/// Deletes the Secret with which a reader has read a mailbox that moves to the hub.
pub(super) async fn take_former(link: &LinkArgs, direction: &Direction<'_>) -> anyhow::Result<()> {
    let Direction { reader, publisher, former, .. } = direction;
    let name = secret_name(&publisher.cluster.id);
    let is_ours = |secret: &Value| {
        secret["metadata"]["name"] == *name
            && secret["metadata"]["labels"][well_known::MANAGED_BY] == well_known::CONTROLLER
    };
    if former.secret.as_ref().is_some_and(is_ours) {
        reader.delete(SECRETS, Some(&link.namespace), &name).await?;
    }
    Ok(())
}

/// Deletes the credentials of controllers, unless other clusters still read their mailboxes: those would keep stale
/// endpoints. Published objects stay until the namespace is deleted.
pub(super) async fn let_out(
    link: &LinkArgs,
    hub: &Cluster,
    sides: &[Side],
    pairs: Pairs,
) -> anyhow::Result<Vec<Linked>> {
    let mut members = members(hub).await?;
    for side in sides {
        let Some(reads) = members.get_mut(side.id.as_str()) else { continue };
        let ends = |other: &Side, id: &str| other.id.as_str() == id && pairs.have(side, other);
        reads.retain(|id| !sides.iter().any(|other| ends(other, id)));
        set_reads(hub, &side.id, reads).await?;
    }
    let mut done = Vec::new();
    for side in sides.iter().filter(|side| pairs == Pairs::All || side.is_gone) {
        let mailbox = Mailbox { host: hub, namespace: mailbox(&side.id) };
        let readers: BTreeSet<_> = readers_of(&members, &side.id).collect();
        let reads = members.get(side.id.as_str());
        done.push(let_publish_no_longer(link, side, &mailbox, (&readers, reads)).await?);
    }
    Ok(done)
}

/// The clusters with an account on the hub, each with the clusters that it reads.
async fn members(hub: &Cluster) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let bindings = hub.list(CLUSTER_BINDINGS).await?;
    Ok(bindings.iter().filter_map(member).collect())
}

fn member(binding: &Value) -> Option<(String, BTreeSet<String>)> {
    let name = binding["metadata"]["name"].as_str()?;
    let id = name.strip_prefix(MEMBER)?.strip_prefix('-')?;
    (binding["roleRef"]["name"] == MEMBER).then(|| (id.to_owned(), reads(binding)))
}

/// The clusters that read a cluster's mailbox.
fn readers_of<'a>(
    members: &'a BTreeMap<String, BTreeSet<String>>,
    id: &ClusterId,
) -> impl Iterator<Item = String> + use<'a> {
    let id = id.to_string();
    members.iter().filter(move |(_, reads)| reads.contains(&id)).map(|(reader, _)| reader.clone())
}

async fn let_publish_no_longer(
    link: &LinkArgs,
    publisher: &Side,
    mailbox: &Mailbox<'_>,
    (readers, reads): (&BTreeSet<String>, Option<&BTreeSet<String>>),
) -> anyhow::Result<Linked> {
    let Side { id, cluster, is_gone } = publisher;
    let named = |ids: &BTreeSet<String>| {
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        ids.join(", ")
    };
    let why = match reads.filter(|reads| !reads.is_empty()) {
        _ if !readers.is_empty() => {
            Some(format!("goes on publishing: its mailbox is read by {}", named(readers)))
        }
        Some(reads) => Some(format!("keeps its account: it reads {}", named(reads))),
        None => None,
    };
    if let Some(why) = why {
        return Ok(done(link, id, mailbox, Some(format!("cluster {id} {why}"))));
    }
    take_rights(mailbox, ACCOUNT).await?;
    let mut left = Vec::new();
    match cluster {
        Some(cluster) => cluster.delete(SECRETS, Some(&link.namespace), SECRET).await?,
        None if *is_gone => {}
        None => left.push(format!("delete Secret {}/{SECRET} of cluster {id}", link.namespace)),
    }
    let namespace = &mailbox.namespace;
    let note =
        format!("what cluster {id} has published stays: delete namespace {namespace} of the hub");
    Ok(Linked { left, ..done(link, id, mailbox, Some(note)) })
}

fn done(
    link: &LinkArgs,
    publisher: &ClusterId,
    mailbox: &Mailbox<'_>,
    warning: Option<String>,
) -> Linked {
    Linked {
        reader: publisher.clone(),
        publisher: publisher.clone(),
        account: format!("{}/{ACCOUNT}", mailbox.namespace),
        secret: format!("{}/{SECRET}", link.namespace),
        pod_ranges: vec![],
        expires: None,
        warning,
        left: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(name: &str, role: &str, reads: &str) -> Value {
        let annotations = json!({well_known::READS: reads});
        json!({
            "metadata": {"name": name, "annotations": annotations}, "roleRef": {"name": role},
        })
    }

    #[test]
    fn the_bindings_of_a_hub_say_who_reads_whom() {
        let bindings = [
            binding("mcs-hub-reader-east", MEMBER, "south,west"),
            binding("mcs-hub-reader-west", MEMBER, "east"),
            binding("mcs-hub-reader-south", MEMBER, ""),
            binding("mcs-hub-reader-thief", "cluster-admin", "east"),
            binding("another", MEMBER, "east"),
        ];
        let members: BTreeMap<_, _> = bindings.iter().filter_map(member).collect();
        assert_eq!(members.keys().collect::<Vec<_>>(), ["east", "south", "west"]);
        let readers =
            |id: &str| -> Vec<String> { readers_of(&members, &id.parse().unwrap()).collect() };
        assert_eq!(readers("east"), ["west"]);
        assert_eq!(readers("west"), ["east"]);
        assert_eq!(readers("south"), ["east"]);
        assert!(readers("north").is_empty());
    }

    #[test]
    fn a_clusterpeer_says_whether_its_mailbox_is_on_a_hub() {
        let peer = |id: &str, secret: &str, mailbox: &str| json!({"spec": {"clusterId": id, "mailbox": mailbox, "kubeconfigSecretRef": {"name": secret}}});
        for (one, is_on_hub) in [
            (peer("east", "mailbox", "mcs-east"), true),
            (peer("east", "peer-east", "mcs-east"), true),
            (peer("east", "peer-east", "mcs-mailbox"), false),
            // A cluster of this id publishes at home.
            (peer("mailbox", "peer-mailbox", "mcs-mailbox"), false),
            (json!({}), false),
        ] {
            assert_eq!(peer_on_hub(std::slice::from_ref(&one)).is_some(), is_on_hub, "{one}");
        }
        let refused = needs_hub(&"west".parse().unwrap(), &peer("east", "mailbox", "mcs-east"));
        assert!(refused.to_string().contains("give the hub's kubeconfig with --hub"), "{refused}");
    }

    #[test]
    fn an_account_on_a_hub_reads_no_other_leases() {
        let role = member_role();
        let rules = role["rules"].as_array().unwrap();
        let leases = rules.iter().find(|rule| rule["resources"] == json!(["leases"])).unwrap();
        assert_eq!(leases["resourceNames"], json!(["publisher"]));
        assert!(rules.iter().all(|rule| rule["verbs"] == json!(["list", "watch"])));
    }
}
