//! Facts about a node, and what its source has read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Sections;
use crate::Traffic;

/// Facts about the node from a source or from flags.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The zone of the node.
    pub zone: Option<String>,
    /// The id of the cluster in the clusterset.
    pub cluster_id: Option<String>,
    /// The addresses of the API server. None of them can be a VIP.
    pub api_servers: BTreeSet<IpAddr>,
    /// The ranges of the addresses of Services in this cluster; `None` while they are unknown.
    #[serde(default)]
    pub service_ranges: Option<BTreeSet<IpNet>>,
    /// The known ranges of pods: the ranges of this node, and the ranges of a flag. No address in them can be a VIP.
    #[serde(default)]
    pub pod_ranges: BTreeSet<IpNet>,
    /// The weights and drains of source clusters.
    #[serde(default)]
    pub traffic: Traffic,
    /// The ranges of ClusterSetIPs of the cluster; empty while they are unknown.
    #[serde(default)]
    pub vip_ranges: Vec<IpNet>,
    /// A socket program of others that runs everywhere before ours, where it keeps endpoints with the address of a Service from
    /// being used: it may be what translates Services, and does not see what ours writes.
    #[serde(default)]
    pub translates_first: Option<String>,
}

impl NodeFacts {
    /// Whether the address is in a known range of Services.
    pub fn is_service(&self, ip: IpAddr) -> bool {
        let mut ranges = self.service_ranges.iter().flatten();
        ranges.any(|range| range.contains(&ip))
    }

    /// The socket program that may keep a backend of this address from being translated once more.
    pub fn leaves_untranslated(&self, ip: IpAddr) -> Option<&str> {
        self.translates_first.as_deref().filter(|_| self.is_service(ip))
    }

    /// Takes missing facts from `other`, and adds its addresses of the API server and its ranges of pods.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.api_servers.extend(other.api_servers);
        self.pod_ranges.extend(other.pod_ranges);
        Self {
            zone: self.zone.or(other.zone),
            cluster_id: self.cluster_id.or(other.cluster_id),
            api_servers: self.api_servers,
            service_ranges: self.service_ranges.or(other.service_ranges),
            pod_ranges: self.pod_ranges,
            traffic: if self.traffic == Traffic::default() { other.traffic } else { self.traffic },
            vip_ranges: if self.vip_ranges.is_empty() { other.vip_ranges } else { self.vip_ranges },
            translates_first: self.translates_first.or(other.translates_first),
        }
    }
}

/// The status of a source. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SourceStatus {
    /// A name for people: `manifests in /etc/mcs`.
    pub name: String,
    /// The kinds that it watches; empty for manifests.
    pub kinds: Vec<KindStatus>,
    /// The current problems.
    pub problems: Vec<SourceProblem>,
    /// The number of objects of other kinds, which the agent ignores, by `apiVersion/kind`.
    pub skipped: BTreeMap<String, u64>,
    /// The name of all that it reads, in metrics, if it watches no kinds.
    #[serde(skip)]
    pub whole: &'static str,
    /// What a filter says of the objects.
    #[serde(flatten)]
    pub sections: Sections,
}

impl SourceStatus {
    /// Whether it is a directory of manifests, not an API server.
    pub fn is_directory(&self) -> bool {
        self.kinds.is_empty()
    }
}

/// The status of a kind that a source watches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KindStatus {
    /// `serviceimports.multicluster.x-k8s.io`.
    pub resource: String,
    /// `v1beta1`; absent until the API server names it.
    pub version: Option<String>,
    /// Whether it was listed completely once.
    pub synced: bool,
    /// Set if the watch fails after the kind was listed: the time of the last contact, in seconds since
    /// the Unix epoch. The agent keeps using what it read.
    pub known_until: Option<u64>,
}

/// Something that a source cannot read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceProblem {
    /// For example `web.yaml, document 2`, or a resource.
    pub place: String,
    /// The error, and what the agent uses meanwhile.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_pods_of_flags_and_source_add_up() {
        let facts = |ranges: &[&str]| NodeFacts {
            pod_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            ..NodeFacts::default()
        };
        let both = facts(&["10.244.0.0/16"]).or(facts(&["10.244.1.0/24", "fd44::/64"]));
        assert_eq!(both, facts(&["10.244.0.0/16", "10.244.1.0/24", "fd44::/64"]));
    }
}
