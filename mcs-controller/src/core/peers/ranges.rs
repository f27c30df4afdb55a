//! Finds the overlaps between pod ranges of this cluster and of peers, in one sweep: a cluster can have a range for each
//! node.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;

use super::{PeerName, Peers};
use crate::core::clusterset::ClusterId;

/// The overlaps of a peer's ranges with others.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Shared {
    /// The ranges of this cluster's pods that overlap with the peer's.
    own_pods: BTreeSet<IpNet>,
    /// The ranges of other clusters within the peer's ranges.
    parts: BTreeSet<IpNet>,
    /// The first range of the peer that overlaps with one of another cluster, and a peer of that cluster.
    overlap: Option<(IpNet, usize)>,
}

/// A range of pods, and the peer that has it. `None`: this cluster.
type Range = (IpNet, Option<usize>);

/// The cluster of a peer, and the ranges of its pods. `None`: any address.
type PeerRanges<'a> = (&'a ClusterId, Option<&'a [IpNet]>);

impl Peers {
    /// Sets the ranges of this cluster's pods. Returns whether that changes the rules for endpoints of peers.
    pub fn set_own_pods(&mut self, own_pods: &[IpNet]) -> bool {
        if self.own_pods == own_pods {
            return false;
        }
        self.own_pods = own_pods.to_vec();
        self.share_out()
    }

    /// Stores in each peer the overlaps with its ranges. Returns whether that changes the rules for endpoints.
    pub(super) fn share_out(&mut self) -> bool {
        let ranges = self.by_name.values().map(|peer| &peer.object);
        let ranges: Vec<_> =
            ranges.map(|object| (&object.cluster, object.pod_ranges.as_deref())).collect();
        let shared = shared(&self.own_pods, &ranges);
        let names: Vec<PeerName> = self.by_name.keys().cloned().collect();
        let mut changed = false;
        for (peer, shared) in self.by_name.values_mut().zip(shared) {
            let own_pods: Vec<_> = shared.own_pods.into_iter().collect();
            let other_peers: Vec<_> = shared.parts.into_iter().collect();
            let with_name =
                |(range, other): (IpNet, usize)| Some((range, names.get(other)?.clone()));
            peer.overlap = shared.overlap.and_then(with_name);
            let rules = &peer.rules.endpoints;
            if rules.own_pods != own_pods || rules.other_peers != other_peers {
                let rules = Arc::make_mut(&mut peer.rules.endpoints);
                (rules.own_pods, rules.other_peers) = (own_pods, other_peers);
                changed = true;
            }
        }
        changed
    }
}

/// The overlaps of each peer.
fn shared(own_pods: &[IpNet], peers: &[PeerRanges<'_>]) -> Vec<Shared> {
    let of_peer = |(peer, (_, ranges)): (usize, &PeerRanges<'_>)| {
        let ranges = ranges.unwrap_or_default().iter();
        ranges.map(|range| (*range, Some(peer))).collect::<Vec<_>>()
    };
    let own = own_pods.iter().map(|range| (*range, None));
    let mut ranges: Vec<Range> = own.chain(peers.iter().enumerate().flat_map(of_peer)).collect();
    // Two ranges overlap only if one is within the other. Sorted, a range comes after those around it and before those within it.
    ranges.sort_unstable_by_key(|(range, peer)| (range.network(), range.prefix_len(), *peer));
    let mut shared = vec![Shared::default(); peers.len()];
    let mut around: Vec<Range> = vec![];
    for inner in ranges {
        while around.pop_if(|(outer, _)| !outer.contains(&inner.0)).is_some() {}
        for outer in &around {
            note_overlap(&mut shared, peers, *outer, inner);
        }
        around.push(inner);
    }
    for (shared, (cluster, _)) in
        shared.iter_mut().zip(peers).filter(|(_, (_, ranges))| ranges.is_none())
    {
        let others = peers.iter().filter(|(other, _)| other != cluster);
        let others = others.flat_map(|(_, ranges)| ranges.unwrap_or_default());
        (shared.own_pods, shared.parts) =
            (own_pods.iter().copied().collect(), others.copied().collect());
    }
    shared
}

/// Records that the range `inner` is within `outer`.
fn note_overlap(shared: &mut [Shared], peers: &[PeerRanges<'_>], outer: Range, inner: Range) {
    match (outer.1, inner.1) {
        (Some(peer), None) => {
            shared[peer].own_pods.insert(inner.0);
        }
        (None, Some(peer)) => {
            shared[peer].own_pods.insert(outer.0);
        }
        (Some(one), Some(other)) if peers[one].0 != peers[other].0 => {
            shared[one].overlap.get_or_insert((outer.0, other));
            shared[other].overlap.get_or_insert((inner.0, one));
            if outer.0 != inner.0 {
                shared[one].parts.insert(inner.0);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::clusterset::overlap;

    /// The same by a comparison of each range with each. It has all overlaps, not one.
    fn each_with_each(
        own_pods: &[IpNet],
        peers: &[PeerRanges<'_>],
    ) -> Vec<(Shared, Vec<(IpNet, usize)>)> {
        let of = |(cluster, ranges): &PeerRanges<'_>| {
            let is_one = |is_such: &dyn Fn(&IpNet) -> bool| {
                ranges.is_none_or(|ranges| ranges.iter().any(is_such))
            };
            let mut shared = Shared::default();
            let mut all = vec![];
            let own = own_pods.iter().filter(|own| is_one(&|range| overlap(range, own)));
            shared.own_pods = own.copied().collect();
            let others = peers.iter().enumerate().filter(|(_, (of, _))| of != cluster);
            for (other, (_, others)) in others {
                for net in others.iter().copied().flatten() {
                    if is_one(&|range| range.contains(net) && range != net) {
                        shared.parts.insert(*net);
                    }
                    let near =
                        ranges.unwrap_or_default().iter().filter(|range| overlap(range, net));
                    all.extend(near.map(|range| (*range, other)));
                }
            }
            all.sort_by_key(|(range, _)| (range.network(), range.prefix_len()));
            (shared, all)
        };
        peers.iter().map(of).collect()
    }

    fn any_range() -> impl Strategy<Value = (IpNet, usize)> {
        let v4 =
            (0..16_u8, 4..=8_u8).prop_map(|(top, length)| format!("{}.0.0.0/{length}", top * 16));
        let v6 = (0..4_u8, 1..=4_u8).prop_map(|(top, length)| format!("{top}000::/{length}"));
        (prop_oneof![4 => v4, 1 => v6], 0..7_usize)
            .prop_map(|(text, owner)| (text.parse::<IpNet>().expect("a range").trunc(), owner))
    }

    proptest! {
        #[test]
        fn a_sweep_finds_what_a_comparison_of_all_finds(
            ranges in prop::collection::vec(any_range(), 0..14),
            has_any in 0..12_usize,
        ) {
            // A cluster whose mailbox moves has two peers. The last owner is this cluster.
            let clusters: Vec<ClusterId> =
                (0..6).map(|number| format!("c{}", number / 2).parse().expect("an id")).collect();
            let mut of: Vec<Vec<IpNet>> = vec![vec![]; 7];
            for (range, owner) in ranges {
                of[owner].push(range);
            }
            let own_pods = of.pop().expect("this cluster");
            let peers: Vec<PeerRanges<'_>> = clusters.iter().zip(&of).enumerate()
                .map(|(number, (cluster, ranges))| (cluster, (number != has_any).then_some(&**ranges)))
                .collect();
            let found = shared(&own_pods, &peers);
            for (found, (expected, all)) in found.into_iter().zip(each_with_each(&own_pods, &peers)) {
                prop_assert_eq!(&found.own_pods, &expected.own_pods);
                prop_assert_eq!(&found.parts, &expected.parts);
                prop_assert_eq!(found.overlap.map(|one| one.0), all.first().map(|one| one.0));
                prop_assert!(found.overlap.is_none_or(|one| all.contains(&one)));
            }
        }
    }

    #[test]
    fn many_ranges_take_one_sweep() {
        let clusters: Vec<ClusterId> =
            (0..50).map(|number| format!("c{number}").parse().expect("an id")).collect();
        let range = |peer: usize, node: usize| -> IpNet {
            format!("10.{peer}.{}.0/24", node % 256).parse().expect("a range")
        };
        let mut ranges: Vec<Vec<IpNet>> =
            (0..50).map(|peer| (0..1000).map(|node| range(peer, node)).collect()).collect();
        let found = |ranges: &[Vec<IpNet>]| {
            let peers: Vec<_> =
                clusters.iter().zip(ranges).map(|(one, of)| (one, Some(&**of))).collect();
            shared(&[], &peers).into_iter().filter(|one| one.overlap.is_some()).count()
        };
        assert_eq!(found(&ranges), 0);
        ranges[0].push("10.0.0.0/8".parse().expect("a range"));
        // Each with each would be 2,500,000,000 comparisons.
        assert_eq!(found(&ranges), 50);
    }
}
