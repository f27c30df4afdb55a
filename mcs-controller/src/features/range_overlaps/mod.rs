//! Address ranges that two clusters or two purposes have: the condition `CIDRsDisjoint` of peers, and warnings about VIP ranges.

mod condition;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use mcs_kube::reasons::Rejection;

use self::condition::{OwnRanges, disjoint};
use crate::core::{
    clusterset::ClusterId,
    control::State,
    feature::{Core, Entry, Feature},
    objects::PeerCondition,
    peers::{Peer, PeerName},
};

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Overlaps::default()))), ..Entry::NONE };

#[derive(Default)]
struct Overlaps {
    own: OwnRanges,
    /// The number of rejected endpoints.
    rejected: BTreeMap<ClusterId, BTreeMap<Rejection, usize>>,
    /// The last report of VIP ranges that overlap with other ranges.
    told: Vec<String>,
}

impl Feature for Overlaps {
    fn act(&mut self, core: &mut Core, _: Instant) {
        let state = &core.state;
        let nodes = Arc::clone(state.own.node_addresses());
        self.own = OwnRanges::new(state.pod_ranges(), state.reserved_ranges(), nodes);
        let rejected = state.rejected().into_iter();
        self.rejected = rejected.map(|(cluster, counts)| (cluster.clone(), counts)).collect();
        if !core.was_synced {
            return;
        }
        let overlaps = overlaps(state);
        if overlaps != self.told {
            for overlap in &overlaps {
                tracing::warn!("{overlap}");
            }
            self.told = overlaps;
        }
    }

    fn peer_condition(&self, _: &PeerName, peer: &Peer) -> Option<PeerCondition> {
        let none = BTreeMap::new();
        let rejected = self.rejected.get(&peer.object.cluster).unwrap_or(&none);
        Some(disjoint(peer, &self.own, rejected))
    }
}

/// Which ranges of this cluster overlap with VIP ranges.
fn overlaps(state: &State) -> Vec<String> {
    let vips = state.vip_ranges();
    let services: Vec<_> = state.own.service_ranges().collect();
    let mut overlaps = vips.overlaps(&services, "Services");
    overlaps.extend(vips.overlaps(state.pod_ranges(), "pods"));
    if state.settings.pod_ranges.is_empty() {
        let told = state.own.nodes_over(&vips).take(1).map(|(node, range)| {
                format!(
                    "{range} of Node {node} has a whole VIP range in it, so it is ignored. If it is the range of this \
                     cluster's pods, give the controller --pod-cidr, and all clusters another --vip-cidr"
                )
            });
        overlaps.extend(told);
    }
    overlaps
}
