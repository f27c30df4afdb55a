//! The two halves of a link: a publisher creates an account in its mailbox, and the reader stores the credentials.

use std::ptr;

use anyhow::ensure;
use ipnet::IpNet;
use serde_json::json;

use super::{
    LinkArgs, Linked, READER,
    credentials::{Credentials, Terms, kubeconfig_secret},
    former::{Former, Identity},
    hub, joined,
};
use crate::{
    cluster::{Cluster, PEERS, ROLES},
    pod_ranges::PodRanges,
};
use mcs_controller::core::clusterset::ClusterId;

/// The mailbox of a cluster.
pub(super) struct Mailbox<'a> {
    /// The cluster itself, or the hub.
    pub(super) host: &'a Cluster,
    pub(super) namespace: String,
}

impl<'a> Mailbox<'a> {
    pub(super) fn of(publisher: &'a Cluster, hub: Option<&'a Cluster>, link: &LinkArgs) -> Self {
        match hub {
            Some(hub) => Self { host: hub, namespace: hub::mailbox(&publisher.id) },
            None => Self { host: publisher, namespace: link.mailbox.clone() },
        }
    }
}

/// A publishing cluster.
pub(super) struct Publisher<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) uid: String,
    pub(super) mailbox: Mailbox<'a>,
    pub(super) pods: PodRanges,
}

impl<'a> Publisher<'a> {
    /// `pods`: the ranges of its pods, if they are given.
    pub(super) async fn of(
        cluster: &'a Cluster,
        mailbox: Mailbox<'a>,
        pods: Vec<IpNet>,
    ) -> anyhow::Result<Self> {
        let pods = if pods.is_empty() {
            PodRanges::of(cluster).await?
        } else {
            PodRanges { ranges: pods, are_given: true, warning: None }
        };
        Ok(Self { cluster, uid: cluster.uid().await?, mailbox, pods })
    }

    /// Whether its mailbox is in its own cluster, and not on a hub.
    pub(super) fn is_at_home(&self) -> bool {
        ptr::eq(self.mailbox.host, self.cluster)
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        let Mailbox { host, namespace } = &self.mailbox;
        let authority = host.authority.as_deref();
        Identity { id: &self.cluster.id, uid: &self.uid, mailbox: namespace, authority }
    }

    /// The half of a publisher whose mailbox is in its own cluster: an account for the reader.
    pub(super) async fn let_read(
        &self,
        reader: &ClusterId,
        terms: Terms<'_>,
    ) -> anyhow::Result<Credentials> {
        let Mailbox { host, namespace } = &self.mailbox;
        let has_reader =
            host.draft.is_some() || host.get(ROLES, Some(namespace), READER).await?.is_some();
        ensure!(
            has_reader,
            "cluster {} has no Role {namespace}/{READER}: install the chart mcs-controller there first, or give --hub if its \
             mailbox is on a hub",
            host.id
        );
        Credentials::make(&self.mailbox, reader.as_str(), READER, terms).await
    }
}

/// The half of a reader: a Secret with the credentials, and a ClusterPeer. On a hub the reader has no credentials for a
/// single publisher.
pub(super) async fn accept(
    reader: &Cluster,
    namespace: &str,
    (publisher, pods): (Identity<'_>, &PodRanges),
    credentials: Option<&Credentials>,
    former: &Former,
) -> anyhow::Result<Linked> {
    let Identity { id, uid, mailbox, .. } = publisher;
    let PodRanges { ranges: pod_ranges, warning, .. } =
        pods.clone().or_kept(former.peer.as_ref(), &reader.id, id)?;
    let mut done = Linked {
        reader: reader.id.clone(),
        publisher: id.clone(),
        account: hub::account(&reader.id),
        secret: format!("{namespace}/{}", hub::SECRET),
        pod_ranges,
        expires: None,
        warning,
        left: vec![],
    };
    let mut secret_name = hub::SECRET.to_owned();
    if let Some(credentials) = credentials {
        secret_name = super::secret_name(id);
        let secret = kubeconfig_secret(namespace, &secret_name);
        let note = credentials.store(reader, secret, former.secret.as_ref()).await?;
        done.warning = joined(done.warning, note);
        done.account.clone_from(&credentials.account);
        done.secret = format!("{namespace}/{secret_name}");
        done.expires = credentials.expires();
    }
    let peer = json!({
        "metadata": {"name": id},
        "spec": {
            "clusterId": id,
            "clusterUid": uid,
            "kubeconfigSecretRef": {"name": secret_name},
            "mailbox": mailbox,
            "podCIDRs": done.pod_ranges,
        },
    });
    reader.apply(PEERS, peer).await?;
    Ok(done)
}
