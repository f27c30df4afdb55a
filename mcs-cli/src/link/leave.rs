//! A cluster leaves all its links, with its own kubeconfig alone.

use serde_json::Value;

use super::{
    LinkArgs, MAILBOX, Mailbox,
    credentials::take_rights,
    hub,
    sides::{Pairs, Side},
};
use crate::cluster::{ACCOUNTS, Cluster, PEERS, SECRETS};
use mcs_controller::core::clusterset::{ClusterId, well_known};

/// Deletes the ClusterPeers of a cluster, the credentials in it, and the accounts by which others read its mailbox. Others keep
/// what they have from it until they forget it.
pub(crate) async fn leave(cluster: &Cluster, peers: &[Value]) -> anyhow::Result<()> {
    for peer in peers {
        let name = peer["metadata"]["name"].as_str().unwrap_or_default();
        cluster.delete(PEERS, None, name).await?;
    }
    let ours = format!("{}={}", well_known::MANAGED_BY, well_known::CONTROLLER);
    let namespace = Some(well_known::CONTROLLER);
    for secret in names(&cluster.list_in(SECRETS, namespace, &ours).await?) {
        if is_credential(&secret, peers) {
            cluster.delete(SECRETS, namespace, &secret).await?;
        }
    }
    for account in names(&cluster.list_in(ACCOUNTS, Some(MAILBOX), &ours).await?) {
        let mailbox = Mailbox { host: cluster, namespace: MAILBOX.to_owned() };
        take_rights(&mailbox, &account).await?;
    }
    Ok(())
}

/// Takes the accounts of clusters on a hub away, unless others still read them. Returns what there is to say.
pub(crate) async fn leave_hub(hub: &Cluster, ids: &[ClusterId]) -> anyhow::Result<Vec<String>> {
    let side = |id: &ClusterId| Side { id: id.clone(), cluster: None, is_gone: true };
    let sides: Vec<_> = ids.iter().map(side).collect();
    let link = LinkArgs::new(vec![], None);
    let done = hub::let_out(&link, hub, &sides, Pairs::All).await?;
    Ok(done.into_iter().filter_map(|one| one.warning).collect())
}

fn names(objects: &[Value]) -> Vec<String> {
    let names = objects.iter().filter_map(|object| object["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Whether a Secret has the credentials of a peer, or of the mailbox on a hub.
fn is_credential(secret: &str, peers: &[Value]) -> bool {
    let is_named = |peer: &Value| peer["spec"]["kubeconfigSecretRef"]["name"] == *secret;
    secret == hub::SECRET || secret.starts_with("peer-") || peers.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_leaves_with_the_secrets_of_its_peers() {
        let peers =
            [json!({"spec": {"clusterId": "west", "kubeconfigSecretRef": {"name": "own"}}})];
        for (secret, is_ours) in
            [("mailbox", true), ("own", true), ("peer-gone", true), ("tls", false)]
        {
            assert_eq!(is_credential(secret, &peers), is_ours, "{secret}");
        }
    }
}
