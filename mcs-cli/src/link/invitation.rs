//! An invitation: a Secret with which a cluster can read another one, and the identity and ranges of the latter.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use mcs_kube::{ApiAccess, KubeconfigContent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, json};
use tokio::sync::watch;

use super::{
    credentials::{Credentials, kubeconfig_secret},
    former::Identity,
    secret_name,
};
use crate::{
    check::addresses::Ranges,
    cluster::{Cluster, LEASES},
    pod_ranges::PodRanges,
};
use mcs_controller::core::{
    clusterset::{ClusterId, well_known},
    peers::token::TokenClaims,
};

/// The annotation of the Secret with [`Facts`].
const ANNOTATION: &str = "clusterset.mcs-agent.io/invitation";
/// The mode of a file that only its owner may read.
const OWNER_ALONE: u32 = 0o600;

/// The identity and ranges of the inviting cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Facts {
    pub(super) cluster: ClusterId,
    pub(super) cluster_uid: String,
    /// The invited cluster.
    pub(super) reader: ClusterId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clusterset: Option<String>,
    pub(super) mailbox: String,
    #[serde(rename = "podCIDRs")]
    pub(super) pods: Vec<IpNet>,
    /// The ranges of its ClusterSetIPs.
    #[serde(rename = "vipCIDRs")]
    pub(super) vips: Vec<IpNet>,
}

/// The identity and ranges of the joining cluster.
pub(super) struct Own<'a> {
    pub(super) id: &'a ClusterId,
    pub(super) uid: String,
    pub(super) clusterset: Option<String>,
    pub(super) ranges: Ranges,
    /// The pod ranges of its peers.
    pub(super) peers: Vec<(String, Vec<IpNet>)>,
}

/// An invitation in a file.
pub(super) struct Invitation {
    pub(super) facts: Facts,
    kubeconfig: Value,
    claims: TokenClaims,
}

/// The text of an invitation: a Secret in this namespace.
pub(super) fn text(
    facts: &Facts,
    credentials: &Credentials,
    namespace: &str,
) -> anyhow::Result<String> {
    let mut secret = kubeconfig_secret(namespace, &secret_name(&facts.cluster));
    secret["apiVersion"] = json!("v1");
    secret["kind"] = json!("Secret");
    secret["metadata"]["annotations"] = json!({ANNOTATION: serde_json::to_string(facts)?});
    let kubeconfig = credentials.kubeconfig.to_string().into_bytes();
    secret["data"]["kubeconfig"] = json!(ByteString(kubeconfig));
    Ok(format!("---\n{}", serde_saphyr::to_string(&secret)?.trim_end()))
}

/// Writes a file that only its owner may read, even if it existed before.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(OWNER_ALONE);
    let written = options.open(path).and_then(|mut file| {
        file.set_permissions(Permissions::from_mode(OWNER_ALONE))?;
        writeln!(file, "{text}")
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

impl Invitation {
    /// Reads a file; `-` is the standard input.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let mut text = String::new();
        let read = if path == "-" {
            io::stdin().read_to_string(&mut text).map(drop)
        } else {
            fs::read_to_string(path).map(|found| text = found)
        };
        read.with_context(|| format!("cannot read {name}"))?;
        Self::of(&text).with_context(|| {
            format!("{name} is no invitation, which `mcs invite` prints in the other cluster")
        })
    }

    fn of(text: &str) -> anyhow::Result<Self> {
        let secret: Value = serde_saphyr::from_str(text)?;
        let facts = secret["metadata"]["annotations"][ANNOTATION].as_str();
        let facts = facts.with_context(|| format!("it has no annotation {ANNOTATION}"))?;
        let facts: Facts = serde_json::from_str(facts)?;
        let kubeconfig: ByteString =
            from_value(secret["data"]["kubeconfig"].clone()).context("it has no kubeconfig")?;
        let kubeconfig: Value = serde_saphyr::from_str(&String::from_utf8(kubeconfig.0)?)?;
        let claims = TokenClaims::of(&kubeconfig.to_string());
        let claims = claims.context("its kubeconfig has no token of a ServiceAccount")?;
        Ok(Self { facts, kubeconfig, claims })
    }

    pub(super) fn credentials(&self) -> Credentials {
        let account = format!("{}/{}", self.claims.namespace, self.claims.account);
        let host = self.facts.cluster.clone();
        Credentials::of_invitation(self.kubeconfig.clone(), account, host)
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        let Facts { cluster, cluster_uid, mailbox, .. } = &self.facts;
        let server = &self.kubeconfig["clusters"][0]["cluster"];
        let authority = server["certificate-authority-data"].as_str();
        Identity { id: cluster, uid: cluster_uid, mailbox, authority }
    }

    /// The pod ranges of the cluster.
    pub(super) fn pods(&self) -> PodRanges {
        PodRanges { ranges: self.facts.pods.clone(), are_given: true, warning: None }
    }

    /// Fails if the joining cluster cannot read the inviting one.
    pub(super) fn ensure_fits(&self, own: &Own<'_>, now: Timestamp) -> anyhow::Result<()> {
        let Facts { cluster, reader, mailbox, .. } = &self.facts;
        ensure!(
            reader == own.id,
            "the invitation is for cluster {reader}, and this one is {}: let `mcs invite {0}` run in cluster {cluster}",
            own.id
        );
        ensure!(
            self.claims.expires > now,
            "the token of the invitation expired at {}: let `mcs invite {reader}` run again in cluster {cluster}",
            self.claims.expires
        );
        ensure!(
            self.claims.namespace == *mailbox,
            "the token of the invitation is of namespace {}, and the mailbox is {mailbox}",
            self.claims.namespace
        );
        let problems = self.facts.problems(own);
        ensure!(problems.is_empty(), "{}. Nothing was changed", problems.join("; "));
        Ok(())
    }

    /// Reads the mailbox with the invitation. Fails unless the inviting cluster publishes there.
    pub(super) async fn ensure_reached(&self) -> anyhow::Result<()> {
        let Facts { cluster, cluster_uid, mailbox, .. } = &self.facts;
        let (_keep, content) = watch::channel(Arc::from(self.kubeconfig.to_string()));
        let name = format!("the invitation of {cluster}");
        let (access, server) = ApiAccess::from_content(KubeconfigContent { name, content }).await?;
        let publisher = Cluster::by(access, server, cluster.clone());
        let lease = publisher.get(LEASES, Some(mailbox), well_known::PUBLISHER_LEASE).await;
        let lease = lease.with_context(|| {
            format!(
                "the API server of the invitation, {}, gives no answer here. Where controllers reach it and this machine does not, give \
                 --no-connect",
                publisher.server
            )
        })?;
        // Before the first run of the controller there is no Lease.
        let Some(lease) = lease else { return Ok(()) };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let uid = lease["metadata"]["annotations"][well_known::CLUSTER_UID].as_str();
        ensure!(
            holder == cluster.as_str() && uid.is_none_or(|uid| uid == cluster_uid),
            "cluster {holder} publishes in the mailbox that the invitation leads to, with the uid {}; the invitation is of {cluster}, \
             {cluster_uid}",
            uid.unwrap_or("unknown")
        );
        Ok(())
    }
}

impl Facts {
    /// Why the joining cluster cannot read this one.
    fn problems(&self, own: &Own<'_>) -> Vec<String> {
        let id = &self.cluster;
        let mut all = Vec::new();
        if id == own.id || self.cluster_uid == own.uid {
            all.push(format!("the invitation is of this very cluster, or of one with its id {id}"));
        }
        if let (Some(theirs), Some(ours)) = (&self.clusterset, &own.clusterset)
            && theirs != ours
        {
            all.push(format!("cluster {id} is in clusterset {theirs}, and this one in {ours}"));
        }
        let Ranges { vips, services, pods } = &own.ranges;
        let vips = [IpNet::V4(vips.v4), IpNet::V6(vips.v6)];
        let ours: [(&str, &[IpNet]); 3] =
            [("pods", pods), ("Services", services), ("ClusterSetIPs", &vips)];
        for (what, ranges) in ours {
            let whose = format!("the {what} of this cluster");
            all.extend(overlap(&self.pods, ranges, id, &whose));
        }
        for (peer, ranges) in own.peers.iter().filter(|(peer, _)| peer != id.as_str()) {
            all.extend(overlap(&self.pods, ranges, id, &format!("the pods of {peer}")));
        }
        all
    }

    /// The warning about different ranges of ClusterSetIPs.
    pub(super) fn other_vips(&self, own: &Own<'_>) -> Option<String> {
        let ours = [IpNet::V4(own.ranges.vips.v4), IpNet::V6(own.ranges.vips.v6)];
        let is_other = self.vips.iter().any(|range| !ours.contains(range));
        is_other.then(|| {
            format!(
                "ClusterSetIPs of cluster {} come from {}, and those of this cluster from {}: give all clusters the same \
                 (global.vipCidrs of the chart)",
                self.cluster,
                crate::pod_ranges::joined(&self.vips),
                crate::pod_ranges::joined(&ours)
            )
        })
    }
}

/// The message about overlapping pod ranges.
fn overlap(pods: &[IpNet], others: &[IpNet], id: &ClusterId, whose: &str) -> Option<String> {
    let overlaps = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
    pods.iter().find_map(|range| {
        let other = others.iter().find(|other| overlaps(range, other))?;
        Some(format!("pods of cluster {id} have addresses of {range}, and {whose} of {other}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::credentials::kubeconfig;
    use mcs_controller::core::clusterset::VipRanges;

    /// `{"sub":"system:serviceaccount:mcs-mailbox:east","iat":1000,"exp":4600}`, in the alphabet of URLs.
    const TOKEN: &str = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6bWNzLW1haWxib3g6ZWFzdCIsImlhdCI6MTAwMCwiZXhwIjo0NjAwfQ.c2ln";

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// An invitation of west for east, with these pods.
    fn invitation(pods: &[&str]) -> Invitation {
        let facts = Facts {
            cluster: "west".parse().unwrap(),
            cluster_uid: "u2".to_owned(),
            reader: "east".parse().unwrap(),
            clusterset: Some("shop".to_owned()),
            mailbox: "mcs-mailbox".to_owned(),
            pods: ranges(pods),
            vips: ranges(&["241.0.0.0/8"]),
        };
        let kubeconfig = kubeconfig("https://west:6443", Some("QQ=="), None, TOKEN);
        let account = "mcs-mailbox/east".to_owned();
        let credentials = Credentials::of_invitation(kubeconfig, account, facts.cluster.clone());
        let text = text(&facts, &credentials, "mcs-controller").unwrap();
        let read = Invitation::of(&text).unwrap();
        assert_eq!(read.facts, facts);
        read
    }

    /// What keeps the cluster with this id, uid and clusterset from joining at this second.
    fn refusal(pods: &[&str], (id, uid, set): (&str, &str, &str), second: i64) -> String {
        let own = Own {
            id: &id.parse().unwrap(),
            uid: uid.to_owned(),
            clusterset: Some(set.to_owned()),
            ranges: Ranges {
                vips: VipRanges::for_clusterset("shop"),
                services: ranges(&["10.96.0.0/16"]),
                pods: ranges(&["10.1.0.0/16"]),
            },
            peers: vec![
                ("west".to_owned(), ranges(&["10.2.0.0/16"])),
                ("south".to_owned(), ranges(&["10.3.0.0/16"])),
            ],
        };
        let now = Timestamp::from_second(second).unwrap();
        let fits = invitation(pods).ensure_fits(&own, now);
        fits.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_invitation_is_for_one_cluster_and_one_time() {
        let east = ("east", "u1", "shop");
        let pods = ["10.2.0.0/16"];
        assert_eq!(refusal(&pods, east, 4599), "");
        for (own, second, expected) in [
            (east, 4600, "expired at"),
            (("south", "u3", "shop"), 0, "is for cluster east, and this one is south"),
            (("east", "u2", "shop"), 0, "of this very cluster"),
            (("east", "u1", "bank"), 0, "in clusterset shop, and this one in bank"),
        ] {
            let refused = refusal(&pods, own, second);
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn pods_of_two_clusters_have_different_addresses() {
        for (pods, expected) in [
            (["10.1.5.0/24"], "the pods of this cluster of 10.1.0.0/16"),
            (["10.0.0.0/9"], "10.0.0.0/9"),
            (["10.96.1.0/24"], "the Services of this cluster"),
            (["241.5.0.0/16"], "the ClusterSetIPs of this cluster"),
            (["10.3.0.0/24"], "the pods of south"),
        ] {
            let refused = refusal(&pods, ("east", "u1", "shop"), 0);
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn the_file_is_its_owners() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("invitation.yaml");
        fs::write(&path, "something longer than that").unwrap();
        write(&path, "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ALONE);
        let error = Invitation::read(&path).err().unwrap();
        assert!(error.to_string().ends_with("`mcs invite` prints in the other cluster"), "{error}");
    }
}
