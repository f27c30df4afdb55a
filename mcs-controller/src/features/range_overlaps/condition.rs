//! The condition `CIDRsDisjoint` of a ClusterPeer.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use mcs_kube::reasons::{Reason, Rejection};

use crate::core::{
    clusterset::overlap,
    objects::PeerCondition,
    peers::Peer,
    status::{condition, plain},
};

/// The addresses of this cluster, which no peer's pods can have.
#[derive(Default)]
pub(super) struct OwnRanges {
    /// The ranges of its pods, sorted, none within another: there can be one for each node.
    pods: Vec<IpNet>,
    /// The VIP ranges, and the ranges of Services.
    reserved: Vec<IpNet>,
    /// The addresses that nodes report.
    nodes: Arc<BTreeMap<IpAddr, Arc<str>>>,
}

impl OwnRanges {
    /// `pods`: the ranges of its pods. `reserved`: the VIP ranges, and the ranges of Services. `nodes`: the addresses that
    /// nodes report.
    pub(super) fn new(
        pods: &[IpNet],
        reserved: Vec<IpNet>,
        nodes: Arc<BTreeMap<IpAddr, Arc<str>>>,
    ) -> Self {
        let mut pods = IpNet::aggregate(&pods.to_vec());
        pods.sort_unstable_by_key(IpNet::network);
        Self { pods, reserved, nodes }
    }

    /// The overlaps of a peer's pod ranges with this cluster.
    fn overlap(&self, peer: &Peer, rejected: &BTreeMap<Rejection, usize>) -> Option<String> {
        let ranges = peer.object.pod_ranges.as_deref().unwrap_or_default();
        let with_pods = |range: &IpNet| Some((*range, *self.pods_of(range)?));
        if let Some((range, own)) = ranges.iter().find_map(with_pods) {
            let rejected = number_of(rejected, Rejection::OwnPods);
            let consequence = if peer.rules.endpoints.own_pods.is_empty() {
                "pods with such addresses are not told apart. With --pod-cidr (chart: podCidrs) endpoints with addresses of \
                 this cluster's pods are refused"
                    .to_owned()
            } else {
                format!(
                    "endpoints are refused where the range of this cluster is not the wider one, {rejected} now"
                )
            };
            return Some(format!(
                "{range} overlaps with {own}, the pods of this cluster: {consequence}"
            ));
        }
        let with_reserved = |range: &IpNet| {
            let own = self.reserved.iter().find(|own| overlap(range, own))?;
            Some((*range, *own))
        };
        if let Some((range, own)) = ranges.iter().find_map(with_reserved) {
            return Some(format!(
                "{range} overlaps with {own}, the range of this cluster's Services or ClusterSetIPs: endpoints with \
                 addresses of both are refused"
            ));
        }
        ranges.iter().find_map(|range| {
            let (ip, node) = self.nodes.range(range.network()..=range.broadcast()).next()?;
            Some(format!(
                "Node {node} of this cluster says that {ip} of {range} is its own address. Endpoints with it are used: \
                 look whether the node is right"
            ))
        })
    }

    fn pods_of(&self, range: &IpNet) -> Option<&IpNet> {
        let after = self.pods.partition_point(|own| own.network() <= range.network());
        let before = after.checked_sub(1).and_then(|place| self.pods.get(place));
        before.into_iter().chain(self.pods.get(after)).find(|own| overlap(range, own))
    }
}

fn number_of(rejected: &BTreeMap<Rejection, usize>, reason: Rejection) -> usize {
    rejected.get(&reason).copied().unwrap_or_default()
}

pub(super) fn disjoint(
    peer: &Peer,
    own_ranges: &OwnRanges,
    rejected: &BTreeMap<Rejection, usize>,
) -> PeerCondition {
    let kind = "CIDRsDisjoint";
    let ranges = peer.object.pod_ranges.as_deref().unwrap_or_default();
    if let Some(message) = own_ranges.overlap(peer, rejected) {
        return condition(kind, Reason::OverlapsOwn, message);
    }
    match &peer.overlap {
        Some((range, other)) => {
            let rejected = number_of(rejected, Rejection::OtherPeer);
            let message = format!(
                "{range} overlaps with a range of ClusterPeer {other}. An address belongs to the narrower range: {rejected} endpoints \
                 are refused now"
            );
            condition(kind, Reason::Overlap, message)
        }
        None if ranges.is_empty() => plain(kind, Reason::NoRanges),
        None if own_ranges.pods.is_empty() => plain(kind, Reason::OwnRangesUnknown),
        None => plain(kind, Reason::Disjoint),
    }
}
