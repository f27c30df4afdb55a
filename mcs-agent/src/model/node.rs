//! Facts about the node that the agent runs on.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Capacity, Ejections, PassiveHealth, Traffic, VIP_RANGES_PROPERTY};

/// Everything about the node and its cluster that the rules use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeContext {
    /// `--node-name`.
    pub node_name: Option<String>,
    /// What flags and the source say.
    pub facts: NodeFacts,
    /// `--vip-cidr`; empty leaves it to the facts.
    pub vip_cidrs: Vec<IpNet>,
    /// The addresses of the node's interfaces. None of them can be a VIP.
    pub node_addresses: BTreeSet<IpAddr>,
    /// `--stale-tcp=destroy`: which endpoints serve matters for TCP too.
    pub stale_tcp: bool,
    /// `--passive-health`.
    pub passive_health: PassiveHealth,
    /// The backends that do not answer clients of this node.
    pub ejections: Ejections,
    /// The limit of `--max-memory`.
    pub capacity: Capacity,
}

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
}

impl NodeFacts {
    /// Whether the address is in a known range of Services.
    pub fn is_service(&self, ip: IpAddr) -> bool {
        let mut ranges = self.service_ranges.iter().flatten();
        ranges.any(|range| range.contains(&ip))
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
        }
    }
}

impl NodeContext {
    /// The ranges that ClusterSetIPs have to be in, and where they come from; none if any address can be one.
    pub fn accepted_vips(&self) -> Option<AcceptedVips<'_>> {
        AcceptedVips::new(&self.vip_cidrs, &self.facts.vip_ranges)
    }

    /// Whether the address is in a range of ClusterSetIPs.
    pub fn is_in_vip_ranges(&self, ip: IpAddr) -> bool {
        self.accepted_vips().is_none_or(|accepted| accepted.contains(ip))
    }

    /// Whether a Service of this cluster can have this address. It can while the ranges are unknown.
    pub fn may_be_service(&self, ip: IpAddr) -> bool {
        self.facts.service_ranges.is_none() || self.facts.is_service(ip)
    }
}

/// The ranges that ClusterSetIPs have to be in.
#[derive(Clone, Copy, Debug)]
pub struct AcceptedVips<'a> {
    /// At least one.
    pub ranges: &'a [IpNet],
    /// Whether `--vip-cidr` has them, and not the cluster.
    pub by_flag: bool,
}

impl<'a> AcceptedVips<'a> {
    /// How many ranges a message names.
    const NAMED: usize = 8;

    /// The flag goes before what the cluster says; none if neither has a range.
    pub fn new(flag: &'a [IpNet], cluster: &'a [IpNet]) -> Option<Self> {
        let by_flag = !flag.is_empty();
        let ranges = if by_flag { flag } else { cluster };
        (!ranges.is_empty()).then_some(Self { ranges, by_flag })
    }

    /// Whether the address is in one of the ranges.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&ip))
    }
}

impl fmt::Display for AcceptedVips<'_> {
    /// `--vip-cidr 241.0.0.0/8,fd00::/96`, or the same of a ClusterProperty. Many ranges are cut short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_flag {
            f.write_str("--vip-cidr")?;
        } else {
            write!(f, "ClusterProperty {VIP_RANGES_PROPERTY}")?;
        }
        let ranges: Vec<_> =
            self.ranges.iter().take(Self::NAMED).map(ToString::to_string).collect();
        let more = if self.ranges.len() > Self::NAMED { ",..." } else { "" };
        write!(f, " {}{more}", ranges.join(","))
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
