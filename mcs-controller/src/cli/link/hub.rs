//! Mailboxes on a hub: a namespace for each cluster, which its controller alone writes.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{
    Done, LinkArgs, LinkCommand, Mailbox, Publisher, READER, give_rights, joined, store_kubeconfig,
    take_rights, unlink::Side,
};
use crate::{
    cli::cluster::{
        BINDINGS, Cluster, EXPORTED, KubeconfigArg, LEASES, NAMESPACES, ROLES, SECRETS,
    },
    clusterset::{ClusterId, well_known},
};

/// Stands for the hub where clusters have ids.
const HUB: &str = "hub";
/// The Role of the controller that publishes.
const WRITER: &str = "mcs-mailbox-writer";
/// Its ServiceAccount in the mailbox. No cluster has an id with a dot.
const ACCOUNT: &str = "publisher.mcs-controller";
/// The Secret with its kubeconfig, as the chart's value `mailbox.secret` names it.
const SECRET: &str = "mailbox";

/// The namespace of a cluster's mailbox on the hub.
pub(super) fn mailbox(publisher: &ClusterId) -> String {
    format!("mcs-{publisher}")
}

/// The hub, if there is one.
pub(super) async fn open(argument: Option<&KubeconfigArg>) -> anyhow::Result<Option<Cluster>> {
    let Some(argument) = argument else { return Ok(None) };
    let hub = Cluster::open_as(argument, HUB.parse()?).await?;
    hub.list(EXPORTED).await.with_context(|| {
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

/// Makes a mailbox, and lets the controller of its cluster write it.
pub(super) async fn let_publish(
    command: &LinkCommand,
    publisher: &Publisher<'_>,
) -> anyhow::Result<Done> {
    let Publisher { cluster: publisher, mailbox, .. } = publisher;
    let Mailbox { host, namespace } = mailbox;
    let labels = json!({well_known::MANAGED_BY: well_known::CONTROLLER});
    host.apply(NAMESPACES, json!({"metadata": {"name": namespace, "labels": labels}})).await?;
    for (name, verbs) in [
        (READER, &["get", "list", "watch"][..]),
        (WRITER, &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ] {
        let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        let rules = [
            rule(well_known::GROUP, "exportedservices"),
            rule("discovery.k8s.io", "endpointslices"),
            rule("coordination.k8s.io", "leases"),
        ];
        let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
        host.apply(ROLES, json!({"metadata": metadata, "rules": rules})).await?;
    }
    give_rights(mailbox, ACCOUNT, WRITER).await?;
    let former = publisher.get(SECRETS, Some(&command.link.namespace), SECRET).await?;
    let secret = (SECRET, former.as_ref());
    let kept = store_kubeconfig(command, publisher, mailbox, ACCOUNT, secret).await?;
    let note = format!(
        "the controller of cluster {} publishes there with mailbox.namespace={namespace} and mailbox.secret={SECRET} \
         in the values of its chart",
        publisher.id
    );
    Ok(done(&command.link, &publisher.id, mailbox, joined(Some(note), kept)))
}

/// Takes the credentials of a controller away, unless other clusters still read its mailbox: they would keep its endpoints
/// as they are. What it has published stays until the namespace is deleted.
pub(super) async fn let_publish_no_longer(
    link: &LinkArgs,
    publisher: &Side,
    mailbox: &Mailbox<'_>,
) -> anyhow::Result<Done> {
    let Side { id, cluster, is_gone } = publisher;
    let readers = readers(mailbox).await?;
    if !readers.is_empty() {
        let readers = readers.join(", ");
        let note = format!("cluster {id} goes on publishing: its mailbox is read by {readers}");
        return Ok(done(link, id, mailbox, Some(note)));
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
    Ok(Done { left, ..done(link, id, mailbox, Some(note)) })
}

/// The clusters that may read the mailbox.
async fn readers(mailbox: &Mailbox<'_>) -> anyhow::Result<Vec<String>> {
    let Mailbox { host, namespace } = mailbox;
    let bindings = host.list_in(BINDINGS, namespace, "").await?;
    let of_readers = bindings.iter().filter(|binding| binding["roleRef"]["name"] == READER);
    let names = of_readers.filter_map(|binding| binding["metadata"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

fn done(
    link: &LinkArgs,
    publisher: &ClusterId,
    mailbox: &Mailbox<'_>,
    warning: Option<String>,
) -> Done {
    Done {
        reader: publisher.clone(),
        publisher: publisher.clone(),
        account: format!("{}/{ACCOUNT}", mailbox.namespace),
        secret: format!("{}/{SECRET}", link.namespace),
        pod_ranges: vec![],
        warning,
        left: vec![],
    }
}
