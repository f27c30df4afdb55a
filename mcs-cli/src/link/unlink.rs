//! `mcs unlink`: deletes the reachable parts of a link, and reports the others.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use mcs_kube::told;
use serde_json::Value;

use super::{
    LinkArgs, Linked, Mailbox,
    credentials::take_rights,
    former::{cluster_in, kubeconfig},
    hub, secret_name,
    sides::{Pairs, Side},
};
use crate::{
    cluster::{ACCOUNTS, Cluster, PEERS, SECRETS},
    fleet,
    kubeconfig::KubeconfigArg,
};
use mcs_controller::core::clusterset::ClusterId;

/// The API servers of a link's mailboxes.
#[derive(Clone, Copy)]
enum Mailboxes<'a> {
    /// Each mailbox is in its cluster.
    AtHome,
    /// All are on a hub; absent if it does not answer.
    OnHub(Option<&'a Cluster>),
}

/// `gone`: clusters that are gone for good.
pub(super) async fn unlink_all(
    link: &LinkArgs,
    gone: &[ClusterId],
    pairs: Pairs,
) -> anyhow::Result<Vec<Linked>> {
    let sides = sides(link, gone).await?;
    let ids: BTreeSet<_> = sides.iter().map(|side| side.id.as_str()).collect();
    let is_gone = |id: &str| sides.iter().any(|side| side.is_gone && side.id.as_str() == id);
    let answering: Vec<_> = sides.iter().filter_map(|side| side.cluster.as_ref()).collect();
    let is_meant = |id: &str| ids.contains(id) && (pairs == Pairs::All || is_gone(id));
    hub::ensure_hub(&answering, link.hub.is_some(), is_meant).await?;
    let hub = match &link.hub {
        Some(argument) => Some((argument, hub::open(Some(argument)).await)),
        None => None,
    };
    let mailboxes = match &hub {
        None => Mailboxes::AtHome,
        Some((_, hub)) => Mailboxes::OnHub(hub.as_ref().ok().and_then(Option::as_ref)),
    };
    let all =
        sides.iter().flat_map(|reader| sides.iter().map(move |publisher| (reader, publisher)));
    let meant = all
        .filter(|(reader, publisher)| reader.id != publisher.id && pairs.have(reader, publisher));
    let unlinked = fleet::each(meant, async |(reader, publisher): (&Side, &Side)| {
        unlink_one(link, reader, publisher, mailboxes).await
    });
    let mut done = unlinked.await;
    match &hub {
        Some((_, Ok(Some(host)))) => done.extend(hub::let_out(link, host, &sides, pairs).await?),
        Some((argument, Err(error))) => {
            eprintln!("mcs: the hub of {argument} cannot be used: {}", told(error));
        }
        _ => {}
    }
    Ok(done)
}

/// Fails unless a cluster has objects of this one: the id may be mistyped.
pub(super) async fn ensure_known(link: &LinkArgs, id: &ClusterId) -> anyhow::Result<()> {
    let clusters = Cluster::open_all(&link.clusters.named()?).await?;
    let known = fleet::each(&clusters, async |cluster| {
        let account = cluster.get(ACCOUNTS, Some(&link.mailbox), id.as_str()).await?;
        let secret = cluster.get(SECRETS, Some(&link.namespace), &secret_name(id)).await?;
        anyhow::Ok((account.is_some() || secret.is_some(), cluster.list(PEERS).await?))
    });
    let known = fleet::all_of(known.await)?;
    let of_peers = known.iter().flat_map(|(_, peers)| peers);
    let peers: BTreeSet<_> =
        of_peers.filter_map(|peer| peer["spec"]["clusterId"].as_str()).collect();
    if peers.contains(id.as_str()) || known.iter().any(|(is_known, _)| *is_known) {
        return Ok(());
    }
    let peers: Vec<_> = peers.into_iter().collect();
    bail!("no cluster here knows {id}, only {}", peers.join(", "))
}

/// The clusters of the kubeconfigs, and the clusters that are gone.
async fn sides(link: &LinkArgs, gone: &[ClusterId]) -> anyhow::Result<Vec<Side>> {
    let gone = gone.iter().cloned();
    let mut sides: Vec<_> = gone.map(|id| Side { id, cluster: None, is_gone: true }).collect();
    let mut away = Vec::new();
    let named = link.clusters.named()?;
    for (argument, opened) in named.iter().zip(fleet::each(&named, Cluster::open).await) {
        match opened {
            Ok(cluster) => {
                let id = cluster.id.clone();
                sides.push(Side { id, cluster: Some(cluster), is_gone: false });
            }
            Err(error) => away.push((argument, error)),
        }
    }
    for (argument, error) in away {
        let error = told(&error);
        let reached = sides.iter().filter_map(|side| side.cluster.as_ref());
        let id = id_of(argument, reached, &link.namespace).await?;
        let id = id.with_context(|| {
            format!(
                "the cluster of {argument} does not answer ({error}), and no ClusterPeer of the others leads to it: give its id \
                 with --gone instead of its kubeconfig"
            )
        })?;
        eprintln!("mcs: cluster {id} does not answer: {error}");
        sides.push(Side { id, cluster: None, is_gone: false });
    }
    ensure!(
        sides.len() > 1 && sides.iter().any(|side| side.cluster.is_some()),
        "give the kubeconfigs or contexts of clusters that answer, and the ids of those that are gone"
    );
    for (place, side) in sides.iter().enumerate() {
        let is_same = |other: &Side| other.id == side.id;
        ensure!(!sides[..place].iter().any(is_same), "cluster {} is named twice", side.id);
    }
    Ok(sides)
}

/// The id of a cluster that does not answer, from the ClusterPeer whose Secret leads to the same API server.
async fn id_of<'a>(
    argument: &KubeconfigArg,
    others: impl Iterator<Item = &'a Cluster>,
    namespace: &str,
) -> anyhow::Result<Option<ClusterId>> {
    let wanted = Cluster::open_as(argument, "unknown".parse()?).await?;
    for other in others {
        for peer in other.list(PEERS).await? {
            let secret = peer["spec"]["kubeconfigSecretRef"]["name"].as_str().unwrap_or_default();
            let secret = other.get(SECRETS, Some(namespace), secret).await?;
            let id = peer["spec"]["clusterId"].as_str().and_then(|id| id.parse().ok());
            if let (Some(secret), Some(id)) = (secret, id)
                && leads_to(&secret, &wanted.server)
            {
                return Ok(Some(id));
            }
        }
    }
    Ok(None)
}

/// Whether the kubeconfig in a Secret is for the API server with this URL. Several clusters can have one authority.
fn leads_to(secret: &Value, server: &str) -> bool {
    kubeconfig(secret).is_some_and(|text| cluster_in(&text)["server"] == server)
}

/// Ends one direction.
async fn unlink_one(
    link: &LinkArgs,
    reader: &Side,
    publisher: &Side,
    mailboxes: Mailboxes<'_>,
) -> Linked {
    let (namespace, secret) = (&link.namespace, secret_name(&publisher.id));
    let account = reader.id.as_str();
    let is_on_hub = matches!(mailboxes, Mailboxes::OnHub(_));
    let mut left = Vec::new();
    let name = &publisher.id;
    match &reader.cluster {
        Some(cluster) => {
            let peer = cluster.delete(PEERS, None, publisher.id.as_str()).await;
            let secret = cluster.delete(SECRETS, Some(namespace), &secret).await;
            left.extend(
                [peer, secret].into_iter().filter_map(Result::err).map(|error| told(&error)),
            );
        }
        None if reader.is_gone => {}
        None if is_on_hub => left.push(format!("delete ClusterPeer {name} of cluster {account}")),
        None => left.push(format!(
            "delete ClusterPeer {name} and Secret {namespace}/{secret} of cluster {account}"
        )),
    }
    let account_of = format!("{}/{account}", link.mailbox);
    match (mailboxes, &publisher.cluster) {
        // `let_out` ends the rights there.
        (Mailboxes::OnHub(Some(_)), _) => {}
        (Mailboxes::OnHub(None), _) => left.push(format!(
            "run `unlink` again when the hub answers: cluster {account} may still read {} there",
            hub::mailbox(name)
        )),
        (Mailboxes::AtHome, Some(host)) => {
            let mailbox = Mailbox { host, namespace: link.mailbox.clone() };
            let taken = take_rights(&mailbox, account).await;
            left.extend(taken.err().map(|error| told(&error)));
        }
        (Mailboxes::AtHome, None) if publisher.is_gone => {}
        (Mailboxes::AtHome, None) => left.push(format!(
            "delete ServiceAccount {account_of} of cluster {name}, which ends its rights"
        )),
    }
    let (account, secret) =
        if is_on_hub { (hub::account(&reader.id), hub::SECRET) } else { (account_of, &*secret) };
    Linked {
        reader: reader.id.clone(),
        publisher: publisher.id.clone(),
        account,
        secret: format!("{namespace}/{secret}"),
        pod_ranges: vec![],
        expires: None,
        warning: None,
        left,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::link::credentials::kubeconfig;

    fn side(id: &str, is_gone: bool) -> Side {
        Side { id: id.parse().unwrap(), cluster: None, is_gone }
    }

    fn link() -> LinkArgs {
        use clap::Parser as _;
        let cli = crate::Cli::try_parse_from(["mcs", "unlink", "a", "--gone", "b"]);
        let crate::Command::Unlink(command) = cli.unwrap().command else { panic!("unlink") };
        command.link
    }

    #[tokio::test]
    async fn what_cannot_be_reached_is_left_to_do() {
        let left =
            async |reader, publisher, hub| unlink_one(&link(), &reader, &publisher, hub).await.left;
        let of_both = left(side("east", false), side("west", false), Mailboxes::AtHome).await;
        assert_eq!(
            of_both,
            [
                "delete ClusterPeer west and Secret mcs-controller/peer-west of cluster east",
                "delete ServiceAccount mcs-mailbox/east of cluster west, which ends its rights",
            ]
        );
        assert_eq!(left(side("east", true), side("west", true), Mailboxes::AtHome).await, [""; 0]);
        let of_hub = left(side("east", true), side("west", true), Mailboxes::OnHub(None)).await;
        assert_eq!(
            of_hub,
            ["run `unlink` again when the hub answers: cluster east may still read mcs-west there"]
        );
    }

    #[test]
    fn a_cluster_that_is_away_is_known_by_its_url() {
        let text = kubeconfig("https://east:6443", Some("QQ=="), None, "token").to_string();
        let secret = json!({"data": {"kubeconfig": ByteString(text.into_bytes())}});
        assert!(leads_to(&secret, "https://east:6443"));
        assert!(!leads_to(&secret, "https://west:6443"));
        assert!(!leads_to(&json!({}), "https://west:6443"));
    }
}
