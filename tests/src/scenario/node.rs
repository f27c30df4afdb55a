//! The node of a scenario: flags, capacity and addresses.

use std::{collections::BTreeSet, net::IpAddr};

use anyhow::Context as _;
use ipnet::IpNet;
use mcs_agent::core::{
    model::{Capacity, NodeContext, NodeFacts, Traffic},
    source::ReadFrom,
};
use serde::Deserialize;

/// Small, so that freed ids and slots are reused soon.
const CAPACITY: Capacity =
    Capacity { vips: 16, frontends: 16, endpoints: 32, clusters: 4, imports: 16 };

/// A node and the flags of its agent.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) context: NodeContext,
    /// It counts from the next start.
    pub(super) reads: ReadFrom,
}

/// The flags of `mcs-agent run` that the rules know, what there is room for, and the addresses of the
/// node's interfaces.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Description {
    node_name: Option<String>,
    zone: Option<String>,
    cluster_id: Option<String>,
    vip_cidr: Vec<IpNet>,
    /// Without a range, it is unknown.
    service_cidr: Option<BTreeSet<IpNet>>,
    pod_cidr: BTreeSet<IpNet>,
    api_server: BTreeSet<IpAddr>,
    vips: Option<u32>,
    frontends: Option<u32>,
    endpoints: Option<u32>,
    clusters: Option<u32>,
    addresses: BTreeSet<IpAddr>,
    import_group: Option<String>,
    traffic: Traffic,
    /// A socket program of others that runs before ours.
    translates_first: Option<String>,
    /// The words of `--adopt`.
    adopt: BTreeSet<String>,
}

/// A node without flags.
pub(super) fn plain() -> Node {
    let context = NodeContext {
        capacity: CAPACITY,
        facts: NodeFacts { service_ranges: service_ranges(None), ..NodeFacts::default() },
        ..NodeContext::default()
    };
    Node { context, reads: ReadFrom::default() }
}

/// The ranges; without any, a range where no scenario has an address. `None` if the list is empty.
fn service_ranges(listed: Option<BTreeSet<IpNet>>) -> Option<BTreeSet<IpNet>> {
    let ranges = listed.unwrap_or_else(|| "172.30.0.0/16".parse().into_iter().collect());
    (!ranges.is_empty()).then_some(ranges)
}

/// A node described in YAML.
pub(super) fn parse(text: &str) -> anyhow::Result<Node> {
    let node: Description = serde_saphyr::from_str(text).context("cannot read the node")?;
    let mut reads = ReadFrom::default();
    reads.import_group = node.import_group.unwrap_or(reads.import_group);
    reads.sections.set("adopt", &node.adopt);
    let context = NodeContext {
        node_name: node.node_name,
        facts: NodeFacts {
            zone: node.zone,
            cluster_id: node.cluster_id,
            api_servers: node.api_server,
            service_ranges: service_ranges(node.service_cidr),
            pod_ranges: node.pod_cidr,
            traffic: node.traffic,
            vip_ranges: vec![],
            translates_first: node.translates_first,
        },
        vip_cidrs: node.vip_cidr,
        node_addresses: node.addresses,
        capacity: Capacity {
            vips: node.vips.or(node.frontends).unwrap_or(CAPACITY.vips),
            frontends: node.frontends.unwrap_or(CAPACITY.frontends),
            endpoints: node.endpoints.unwrap_or(CAPACITY.endpoints),
            clusters: node.clusters.unwrap_or(CAPACITY.clusters),
            imports: node.frontends.unwrap_or(CAPACITY.imports),
        },
        stale_tcp: false,
        ..NodeContext::default()
    };
    Ok(Node { context, reads })
}
