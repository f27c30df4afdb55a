//! Facts about the node that the agent runs on.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use ipnet::IpNet;

use super::{Capacity, Ejections, NodeFacts, VIP_RANGES_PROPERTY};

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
    /// The backends that do not answer clients of this node.
    pub ejections: Ejections,
    /// The limit of `--max-memory`.
    pub capacity: Capacity,
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
