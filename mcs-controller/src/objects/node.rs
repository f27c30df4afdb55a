//! Nodes: the addresses that belong to this cluster.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use mcs_kube::{Decoder, ObjectKey};
use serde_json::Value;

/// The addresses of a node and of its pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeObject {
    /// `status.addresses`, without names.
    pub addresses: BTreeSet<IpAddr>,
    /// `spec.podCIDRs`, which some networks do not use.
    pub pod_ranges: Vec<IpNet>,
}

/// Decodes Nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeDecoder;

impl Decoder for NodeDecoder {
    type Value = NodeObject;

    fn decode(_: ObjectKey, object: &Value) -> Result<NodeObject, String> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let addresses = list(&object["status"]["addresses"]);
        let addresses = addresses.iter().filter_map(|one| one["address"].as_str()?.parse().ok());
        let ranges = list(&object["spec"]["podCIDRs"]);
        let ranges = ranges.iter().filter_map(|range| range.as_str()?.parse().ok());
        Ok(NodeObject { addresses: addresses.collect(), pod_ranges: ranges.collect() })
    }
}
