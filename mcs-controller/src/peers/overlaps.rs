//! Which pod ranges of clusters overlap: one sweep over all of them, as a cluster can have a range for each node.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::PeerName;
use crate::clusterset::ClusterId;

/// The first range of each peer that overlaps with one of another cluster, and a peer of that cluster.
pub(super) type Overlaps = BTreeMap<PeerName, (IpNet, PeerName)>;

/// A pod range, with the peer that has it and its cluster.
pub(super) type PeerRange<'a> = (IpNet, &'a PeerName, &'a ClusterId);

/// Two ranges overlap only if one is within the other. Sorted, a range comes after those around it and before those within it.
pub(super) fn overlaps(mut ranges: Vec<PeerRange<'_>>) -> Overlaps {
    ranges.sort_by_key(|(range, name, _)| (range.network(), range.prefix_len(), *name));
    let within = nearest_within(&ranges);
    let mut overlaps = Overlaps::new();
    // The ranges around the current one, each with the nearest around it that is of another cluster.
    let mut around: Vec<(PeerRange<'_>, Option<&PeerName>)> = vec![];
    for ((range, name, cluster), within) in ranges.iter().copied().zip(within) {
        while around.pop_if(|((other, ..), _)| !other.contains(&range)).is_some() {}
        let nearest = around.last().and_then(
            |((_, other, of), further)| {
                if *of == cluster { *further } else { Some(*other) }
            },
        );
        if let Some(other) = nearest.or(within) {
            overlaps.entry(name.clone()).or_insert((range, other.clone()));
        }
        around.push(((range, name, cluster), nearest));
    }
    overlaps
}

/// For each of the sorted ranges, the peer with the first range within it that is of another cluster.
fn nearest_within<'a>(ranges: &[PeerRange<'a>]) -> Vec<Option<&'a PeerName>> {
    let mut found = Vec::with_capacity(ranges.len());
    let mut next: Option<PeerRange<'a>> = None;
    let mut other: Option<PeerRange<'a>> = None;
    for current in ranges.iter().rev().copied() {
        if next.is_some_and(|(.., of)| of != current.2) {
            other = next;
        }
        let is_within = |(range, ..): &PeerRange<'_>| current.0.contains(range);
        found.push(other.filter(is_within).map(|(_, name, _)| name));
        next = Some(current);
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn each_with_each(ranges: &[PeerRange<'_>]) -> BTreeMap<PeerName, Vec<(IpNet, PeerName)>> {
        let mut found: BTreeMap<PeerName, Vec<_>> = BTreeMap::new();
        for (range, name, cluster) in ranges {
            for (other, other_name, _) in ranges.iter().filter(|(.., of)| of != cluster) {
                if range.contains(other) || other.contains(range) {
                    let pair = (*range, (*other_name).clone());
                    found.entry((*name).clone()).or_default().push(pair);
                }
            }
        }
        found
    }

    fn any_range() -> impl Strategy<Value = (IpNet, usize)> {
        let v4 =
            (0..16_u8, 4..=8_u8).prop_map(|(top, length)| format!("{}.0.0.0/{length}", top * 16));
        let v6 = (0..4_u8, 1..=4_u8).prop_map(|(top, length)| format!("{top}000::/{length}"));
        (prop_oneof![4 => v4, 1 => v6], 0..6_usize)
            .prop_map(|(text, owner)| (text.parse().expect("a range"), owner))
    }

    proptest! {
        #[test]
        fn a_sweep_finds_whom_a_comparison_of_all_finds(
            ranges in prop::collection::vec(any_range(), 0..12),
        ) {
            // A cluster whose mailbox moves has two peers.
            let peers: Vec<PeerName> = (0..6).map(|number| format!("p{number}").into()).collect();
            let clusters: Vec<ClusterId> =
                (0..6).map(|number| format!("c{}", number / 2).parse().expect("an id")).collect();
            let ranges: Vec<_> = ranges
                .iter()
                .map(|(range, owner)| (*range, &peers[*owner], &clusters[*owner]))
                .collect();
            let (found, expected) = (overlaps(ranges.clone()), each_with_each(&ranges));
            prop_assert!(found.keys().eq(expected.keys()), "{:?} {:?}", found, expected);
            for (name, overlap) in &found {
                prop_assert!(expected[name].contains(overlap), "{:?} {:?}", found, expected);
            }
        }
    }

    #[test]
    fn many_ranges_take_one_sweep() {
        let peers: Vec<PeerName> = (0..50).map(|number| format!("p{number}").into()).collect();
        let clusters: Vec<ClusterId> =
            (0..50).map(|number| format!("c{number}").parse().expect("an id")).collect();
        let range = |peer: usize, node: usize| {
            format!("10.{peer}.{}.0/24", node % 256).parse().expect("a range")
        };
        let mut ranges: Vec<PeerRange<'_>> = (0..50)
            .flat_map(|peer| (0..1000).map(move |node| (peer, node)))
            .map(|(peer, node)| (range(peer, node), &peers[peer], &clusters[peer]))
            .collect();
        assert_eq!(overlaps(ranges.clone()), Overlaps::new());
        ranges.push(("10.0.0.0/8".parse().expect("a range"), &peers[0], &clusters[0]));
        // Each with each would be 2,500,000,000 comparisons.
        assert_eq!(overlaps(ranges).len(), 50);
    }
}
