//! What `link` keeps when it runs again: pod ranges and URLs that were set and are not given anew.

use anyhow::ensure;
use ipnet::IpNet;
use k8s_openapi::ByteString;
use serde_json::{Value, from_value};

use super::Mailbox;
use crate::{clusterset::ClusterId, peers::token::TokenClaims};

/// The pod ranges of a cluster.
#[derive(Clone, Default)]
pub(super) struct PodRanges {
    pub(super) ranges: Vec<IpNet>,
    /// Whether they are from the command line.
    pub(super) are_given: bool,
    pub(super) warning: Option<String>,
}

impl PodRanges {
    /// The ranges that the reader's ClusterPeer has instead, unless these are given: others may have been set by hand.
    pub(super) fn or_kept(
        self,
        peer: Option<&Value>,
        reader: &ClusterId,
        id: &ClusterId,
    ) -> anyhow::Result<Self> {
        let there = peer.and_then(|peer| peer["spec"]["podCIDRs"].as_array()).into_iter().flatten();
        let kept: Vec<IpNet> = there.filter_map(|range| range.as_str()?.parse().ok()).collect();
        let is_same =
            kept.len() == self.ranges.len() && kept.iter().all(|range| self.ranges.contains(range));
        if self.are_given || kept.is_empty() || is_same {
            ensure!(
                !self.ranges.is_empty(),
                "the pod range of cluster {id} is unknown: give --pod-cidr {id}=CIDR"
            );
            return Ok(self);
        }
        let [had, found] = [&kept, &self.ranges].map(|ranges| {
            let texts: Vec<_> = ranges.iter().map(ToString::to_string).collect();
            texts.join(",")
        });
        let found = if found.is_empty() { found } else { format!(" (found now: {found})") };
        let warning = format!(
            "the ClusterPeer {id} of cluster {reader} keeps its podCIDRs {had}{found}: to change them, give --pod-cidr {id}=CIDR"
        );
        Ok(Self { ranges: kept, are_given: false, warning: Some(warning) })
    }
}

/// The URL in a Secret, if it is another one than the host's and leads to the same mailbox.
pub(super) fn server(secret: &Value, mailbox: &Mailbox<'_>) -> Option<String> {
    let bytes: ByteString = from_value(secret["data"]["kubeconfig"].clone()).ok()?;
    let text = String::from_utf8(bytes.0).ok()?;
    url(&text, &mailbox.host.server, mailbox.host.authority.as_deref(), &mailbox.namespace)
}

fn url(text: &str, server: &str, authority: Option<&str>, namespace: &str) -> Option<String> {
    let claims = TokenClaims::of(text)?;
    let config: Value = serde_saphyr::from_str(text).ok()?;
    let cluster = &config["clusters"][0]["cluster"];
    let url = cluster["server"].as_str()?;
    // A cluster that was made anew, or a hub, has another authority.
    let is_same_host = cluster["certificate-authority-data"].as_str() == authority;
    (is_same_host && claims.namespace == namespace && url != server).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::link::kubeconfig;

    /// `{"sub":"system:serviceaccount:mcs-mailbox:east","iat":1000,"exp":4600}`, in the alphabet of URLs.
    const TOKEN: &str = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6bWNzLW1haWxib3g6ZWFzdCIsImlhdCI6MTAwMCwiZXhwIjo0NjAwfQ.c2ln";

    fn ranges(texts: &[&str], are_given: bool) -> PodRanges {
        let ranges = texts.iter().map(|text| text.parse().unwrap()).collect();
        PodRanges { ranges, are_given, warning: None }
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
        let text = kubeconfig("https://east.example:6443", Some("QQ=="), TOKEN).to_string();
        let kept =
            |authority, namespace| url(&text, "https://127.0.0.1:6443", authority, namespace);
        assert_eq!(kept(Some("QQ=="), "mcs-mailbox").as_deref(), Some("https://east.example:6443"));
        assert_eq!(kept(Some("Qg=="), "mcs-mailbox"), None, "another API server");
        assert_eq!(kept(Some("QQ=="), "mcs-east"), None, "a hub");
        assert_eq!(url(&text, "https://east.example:6443", Some("QQ=="), "mcs-mailbox"), None);
    }
}
