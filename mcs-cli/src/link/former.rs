//! The former objects of a link. A second `link` keeps pod ranges and URLs that are not given, unless the cluster was
//! rebuilt.

use std::collections::HashMap;

use anyhow::bail;
use ipnet::IpNet;
use k8s_openapi::ByteString;
use serde_json::{Value, from_value};

use crate::{
    cluster::{Cluster, PEERS, SECRETS},
    pod_ranges::{PodRanges, joined},
};
use mcs_controller::core::{clusterset::ClusterId, peers::token::TokenClaims};

/// A reader's former objects for a cluster.
#[derive(Default)]
pub(super) struct Former {
    /// The ClusterPeer.
    pub(super) peer: Option<Value>,
    /// The Secret that it names.
    pub(super) secret: Option<Value>,
}

/// The identity of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) id: &'a ClusterId,
    pub(super) uid: &'a str,
    /// The namespace that it publishes in.
    pub(super) mailbox: &'a str,
    /// The authority of the API server with the mailbox.
    pub(super) authority: Option<&'a str>,
}

/// Whether a cluster is the former one with its id.
#[derive(PartialEq, Eq, Debug)]
enum SameCluster {
    Same,
    /// Nobody has recorded its uid.
    Unclear,
    /// Another cluster, for this reason.
    Other(String),
}

/// A reader's former objects for all clusters.
pub(super) struct Formers<'a> {
    reader: &'a Cluster,
    /// The namespace of the Secrets.
    namespace: &'a str,
    pub(super) peers: Vec<Value>,
    /// The Secrets read so far. Peers on a hub share one.
    secrets: HashMap<String, Option<Value>>,
}

impl<'a> Formers<'a> {
    pub(super) async fn of(reader: &'a Cluster, namespace: &'a str) -> anyhow::Result<Self> {
        // Before `mcs up` the API server may lack the type.
        let peers = reader.list_if_served(PEERS).await?;
        Ok(Self { reader, namespace, peers, secrets: HashMap::new() })
    }

    pub(super) async fn get(&mut self, id: &ClusterId) -> anyhow::Result<Former> {
        let peer = self.peers.iter().find(|peer| peer["metadata"]["name"] == *id.as_str());
        let Some(peer) = peer.cloned() else { return Ok(Former::default()) };
        let name = peer["spec"]["kubeconfigSecretRef"]["name"].as_str().unwrap_or_default();
        if !self.secrets.contains_key(name) {
            let secret = self.reader.get(SECRETS, Some(self.namespace), name).await?;
            self.secrets.insert(name.to_owned(), secret);
        }
        let secret = self.secrets.get(name).cloned().flatten();
        Ok(Former { peer: Some(peer), secret })
    }
}

impl Former {
    fn known(&self, now: Identity<'_>) -> SameCluster {
        let spec = self.peer.as_ref().map(|peer| &peer["spec"]);
        let uid = spec.and_then(|spec| spec["clusterUid"].as_str());
        if let Some(uid) = uid.filter(|uid| *uid != now.uid) {
            return SameCluster::Other(format!("its uid was {uid}, and is {}", now.uid));
        }
        // A mailbox that moved to a hub, or back, has the authority of another API server.
        let is_there = spec.is_some_and(|spec| spec["mailbox"] == now.mailbox);
        let authority = self.secret.as_ref().filter(|_| is_there).and_then(authority);
        let is_other = |former: String| {
            let former = Some(&*former).filter(|former| !former.is_empty());
            !shares_certificate(former, now.authority)
        };
        if authority.is_some_and(is_other) {
            return SameCluster::Other(format!(
                "the API server with its mailbox {} has another certificate authority",
                now.mailbox
            ));
        }
        if uid.is_some() { SameCluster::Same } else { SameCluster::Unclear }
    }

    /// The pod ranges of the ClusterPeer.
    pub(super) fn pods(&self) -> PodRanges {
        let ranges = self.peer.as_ref().map(pod_cidrs).unwrap_or_default();
        PodRanges { ranges, are_given: true, warning: None }
    }

    /// The objects to keep. `replace`: the cluster may be another one, for which nothing is kept.
    pub(super) fn kept(
        self,
        now: Identity<'_>,
        reader: &ClusterId,
        replace: bool,
    ) -> anyhow::Result<Self> {
        match self.known(now) {
            SameCluster::Unclear | SameCluster::Other(_) if replace => Ok(Self::default()),
            SameCluster::Other(why) => bail!(
                "cluster {reader} has another cluster {id} as its peer: {why}. If {id} was made anew, or its authority, give --replace \
                 to `mcs link`: then no podCIDRs and no URL from before are kept. If these are two clusters, give one of them \
                 another id. Nothing was changed",
                id = now.id,
            ),
            SameCluster::Same | SameCluster::Unclear => Ok(self),
        }
    }
}

impl PodRanges {
    /// The ranges of the reader's ClusterPeer, unless these ranges are given: the former may have been set by hand.
    pub(super) fn or_kept(
        self,
        peer: Option<&Value>,
        reader: &ClusterId,
        id: &ClusterId,
    ) -> anyhow::Result<Self> {
        let kept = peer.map(pod_cidrs).unwrap_or_default();
        let is_same =
            kept.len() == self.ranges.len() && kept.iter().all(|range| self.ranges.contains(range));
        if self.are_given || kept.is_empty() || is_same {
            self.ensure_known(id)?;
            return Ok(self);
        }
        let (had, found) = (joined(&kept), joined(&self.ranges));
        let found = if found.is_empty() { found } else { format!(" (found now: {found})") };
        let warning = format!(
            "the ClusterPeer {id} of cluster {reader} keeps its podCIDRs {had}{found}: to change them, give --pod-cidr {id}=CIDR"
        );
        Ok(Self { ranges: kept, are_given: false, warning: Some(warning) })
    }
}

/// The pod ranges of a ClusterPeer.
pub(super) fn pod_cidrs(peer: &Value) -> Vec<IpNet> {
    let ranges = peer["spec"]["podCIDRs"].as_array().into_iter().flatten();
    ranges.filter_map(|range| range.as_str()?.parse().ok()).collect()
}

/// The kubeconfig in a Secret.
pub(super) fn kubeconfig(secret: &Value) -> Option<String> {
    let bytes: ByteString = from_value(secret["data"]["kubeconfig"].clone()).ok()?;
    String::from_utf8(bytes.0).ok()
}

/// The first cluster in a kubeconfig; null without one.
pub(super) fn cluster_in(text: &str) -> Value {
    let config: Value = serde_saphyr::from_str(text).unwrap_or_default();
    config["clusters"][0]["cluster"].clone()
}

/// The authority in the kubeconfig of a Secret, if there is a kubeconfig. Empty: the system's authorities.
fn authority(secret: &Value) -> Option<String> {
    let cluster = cluster_in(&kubeconfig(secret)?);
    let named = cluster.as_object()?.get("certificate-authority-data").and_then(Value::as_str);
    Some(named.unwrap_or_default().to_owned())
}

/// Whether two authorities, in base64, share a certificate: during a renewal, a kubeconfig has both.
fn shares_certificate(one: Option<&str>, other: Option<&str>) -> bool {
    let certificates = |text: &str| -> Vec<String> {
        let bytes: Result<ByteString, _> = from_value(text.into());
        let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes.0).ok());
        let text = text.unwrap_or_default();
        let parts = text.split_inclusive("-----END CERTIFICATE-----");
        parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    match (one, other) {
        (Some(one), Some(other)) => {
            let others = certificates(other);
            one == other || certificates(one).iter().any(|one| others.contains(one))
        }
        (one, other) => one == other,
    }
}

/// The URL in a Secret, if it differs from the URL of a new kubeconfig and leads to the same mailbox, in this namespace.
pub(super) fn server(secret: &Value, new: &Value, namespace: &str) -> Option<String> {
    let cluster = &new["clusters"][0]["cluster"];
    let authority = cluster["certificate-authority-data"].as_str();
    url(&kubeconfig(secret)?, cluster["server"].as_str()?, authority, namespace)
}

fn url(text: &str, server: &str, authority: Option<&str>, namespace: &str) -> Option<String> {
    let claims = TokenClaims::of(text)?;
    let cluster = cluster_in(text);
    let url = cluster["server"].as_str()?;
    // A rebuilt cluster, or a hub, has another authority.
    let is_same_host =
        shares_certificate(cluster["certificate-authority-data"].as_str(), authority);
    (is_same_host && claims.namespace == namespace && url != server).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::link::credentials::kubeconfig;

    /// `{"sub":"system:serviceaccount:mcs-mailbox:east","iat":1000,"exp":4600}`, in the alphabet of URLs.
    const TOKEN: &str = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6bWNzLW1haWxib3g6ZWFzdCIsImlhdCI6MTAwMCwiZXhwIjo0NjAwfQ.c2ln";

    fn ranges(texts: &[&str], are_given: bool) -> PodRanges {
        let ranges = texts.iter().map(|text| text.parse().unwrap()).collect();
        PodRanges { ranges, are_given, warning: None }
    }

    fn certificates(names: &[&str]) -> String {
        let mut text = String::new();
        for name in names {
            text.extend(["-----BEGIN CERTIFICATE-----\n", name, "\n-----END CERTIFICATE-----\n"]);
        }
        serde_json::to_value(ByteString(text.into_bytes())).unwrap().as_str().unwrap().to_owned()
    }

    /// What a reader has of east, with its uid as link has recorded it.
    fn former(uid: Option<&str>, authority: &str) -> Former {
        let text = kubeconfig("https://east:6443", Some(authority), None, TOKEN).to_string();
        let mut peer = json!({"spec": {"mailbox": "mcs-mailbox", "podCIDRs": ["10.1.0.0/16"]}});
        if let Some(uid) = uid {
            peer["spec"]["clusterUid"] = json!(uid);
        }
        let secret = json!({"data": {"kubeconfig": ByteString(text.into_bytes())}});
        Former { peer: Some(peer), secret: Some(secret) }
    }

    /// The pod ranges of the ClusterPeer, or why nothing is linked, for a cluster with this uid and authority that has pods of
    /// 10.5.0.0/16.
    fn linked(
        former: Former,
        (uid, mailbox, authority): (&str, &str, &str),
        replace: bool,
    ) -> Result<String, String> {
        let [west, east] = ["west", "east"].map(|id| id.parse().unwrap());
        let now = Identity { id: &east, uid, mailbox, authority: Some(authority) };
        let kept = former.kept(now, &west, replace).map_err(|error| error.to_string())?;
        let pods = ranges(&["10.5.0.0/16"], false).or_kept(kept.peer.as_ref(), &west, &east);
        Ok(joined(&pods.unwrap().ranges))
    }

    #[test]
    fn another_cluster_of_a_known_id_is_refused_and_replaces_it_on_demand() {
        let (one, two) = (certificates(&["one"]), certificates(&["two"]));
        let home = "mcs-mailbox";
        for (uid, now) in [
            (Some("u1"), ("u2", home, &*one)),
            (Some("u1"), ("u2", "mcs-east", &two)),
            (Some("u1"), ("u1", home, &two)),
            (None, ("u2", home, &two)),
        ] {
            let refused = linked(former(uid, &one), now, false).unwrap_err();
            assert!(refused.contains("--replace"), "{refused}");
            assert_eq!(linked(former(uid, &one), now, true).unwrap(), "10.5.0.0/16");
        }
    }

    #[test]
    fn a_cluster_that_is_known_keeps_what_was_set() {
        let (one, two) = (certificates(&["one"]), certificates(&["two"]));
        let both = certificates(&["two", "one"]);
        for replace in [false, true] {
            let of_both = linked(former(Some("u1"), &one), ("u1", "mcs-mailbox", &both), replace);
            assert_eq!(of_both.unwrap(), "10.1.0.0/16", "the authority is being renewed");
            let moved = linked(former(Some("u1"), &one), ("u1", "mcs-east", &two), replace);
            assert_eq!(moved.unwrap(), "10.1.0.0/16", "its mailbox moves to a hub");
        }
        let unclear = linked(former(None, &one), ("u1", "mcs-mailbox", &one), false);
        assert_eq!(unclear.unwrap(), "10.1.0.0/16", "nobody has recorded its uid");
        let replaced = linked(former(None, &one), ("u1", "mcs-mailbox", &one), true);
        assert_eq!(replaced.unwrap(), "10.5.0.0/16");
        let new = linked(Former::default(), ("u1", "mcs-mailbox", &one), false);
        assert_eq!(new.unwrap(), "10.5.0.0/16");
    }
    #[test]
    fn pod_ranges_that_were_set_stay_unless_they_are_given() {
        let peer = json!({"spec": {"podCIDRs": ["10.0.0.0/16"]}});
        let [west, east] = ["west", "east"].map(|id| id.parse().unwrap());
        for (found, are_given, expected, is_told) in [
            (&["10.244.0.0/16"][..], false, "10.0.0.0/16", true),
            (&["10.244.0.0/16"], true, "10.244.0.0/16", false),
            (&["10.0.0.0/16"], false, "10.0.0.0/16", false),
            (&[], false, "10.0.0.0/16", true),
        ] {
            let pods = ranges(found, are_given).or_kept(Some(&peer), &west, &east).unwrap();
            assert_eq!(pods.ranges, ranges(&[expected], false).ranges);
            assert_eq!(pods.warning.is_some(), is_told, "{found:?}");
        }
        let first = ranges(&["10.244.0.0/16"], false).or_kept(None, &west, &east).unwrap();
        assert_eq!(first.ranges, ranges(&["10.244.0.0/16"], false).ranges);
        let unknown = ranges(&[], false).or_kept(None, &west, &east).err().unwrap();
        assert!(unknown.to_string().contains("--pod-cidr east=CIDR"), "{unknown}");
    }

    #[test]
    fn a_url_that_was_set_stays_while_it_leads_to_the_same_mailbox() {
        let text = kubeconfig("https://east.example:6443", Some("QQ=="), None, TOKEN).to_string();
        let kept =
            |authority, namespace| url(&text, "https://127.0.0.1:6443", authority, namespace);
        assert_eq!(kept(Some("QQ=="), "mcs-mailbox").as_deref(), Some("https://east.example:6443"));
        assert_eq!(kept(Some("Qg=="), "mcs-mailbox"), None, "another API server");
        assert_eq!(kept(Some("QQ=="), "mcs-east"), None, "a hub");
        assert_eq!(url(&text, "https://east.example:6443", Some("QQ=="), "mcs-mailbox"), None);
    }
}
