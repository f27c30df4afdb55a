//! Facts about a node.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

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
