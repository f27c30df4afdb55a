//! The slots of the backends of a frontend, if its source clusters have weights, or shares of clients.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{candidate::Candidate, preference::Share};
use crate::core::model::{NodeContext, Traffic};

/// Slots that a frontend may have for each of its backends.
const PER_BACKEND: u64 = 8;
/// Slots that a frontend with few backends may have: enough for shares that are right to 1 %.
const FEW: u64 = 128;
/// The same with session affinity, if it takes so many for a slot of each backend.
const STICKY: u64 = 1024;
/// From this number of slots on, one slot more or less for a backend makes little difference.
const MANY: u64 = 4;
/// Slots of other backends for one of a backend that is half open.
const HALF_OPEN: u32 = 4;

/// A source cluster of a frontend, or a tier of clusters.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    weight: u64,
    backends: u64,
}

/// The slots of each candidate, in their order. `None`: no cluster has a weight, so each candidate gets one.
///
/// The share of a cluster follows from its weight alone, and its endpoints get equal parts of the share. If a cluster has
/// more endpoints than its share has slots, some endpoints get none, other ones on the node with the next [`turn`]. If clients
/// are `sticky`, by session affinity, each endpoint gets one: without a slot it would lose its clients.
pub(super) fn by_weight(
    candidates: &[Candidate<'_>],
    node: &NodeContext,
    sticky: bool,
) -> Option<Vec<u32>> {
    if !has_weights(candidates, node) {
        return None;
    }
    let mut indices: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        indices.entry(candidate.cluster).or_default().push(index);
    }
    let weighed = indices.into_iter().map(|(cluster, indices)| (weight(cluster, node), indices));
    Some(share_out(weighed.collect(), candidates, node, sticky))
}

/// The slots of [`by_weight`] with one slot for each candidate that is half open, as long as others have more.
pub(super) fn with_half_open(
    counts: Option<Vec<u32>>,
    candidates: &[Candidate<'_>],
    is_half_open: impl Fn(&Candidate<'_>) -> bool,
) -> Option<Vec<u32>> {
    let half_open: Vec<bool> = candidates.iter().map(is_half_open).collect();
    if half_open.iter().all(|one| *one == half_open[0]) {
        return counts;
    }
    let mut counts = counts.unwrap_or_else(|| vec![1; candidates.len()]);
    for (count, is_half_open) in counts.iter_mut().zip(half_open) {
        *count = if is_half_open { (*count).min(1) } else { *count * HALF_OPEN };
    }
    Some(counts)
}

/// The slots of each candidate of clusters with shares. Inside a share, clusters get slots by weight if `weighs`, else
/// endpoints get equal parts.
pub(super) fn by_share(
    candidates: &[Candidate<'_>],
    shares: &[Share],
    weighs: bool,
    node: &NodeContext,
    sticky: bool,
) -> Vec<u32> {
    let weighs = weighs && has_weights(candidates, node);
    let mut all: Vec<(u64, Vec<usize>)> = Vec::new();
    for one in shares {
        let mut indices: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let inside = |(_, candidate): &(usize, &Candidate<'_>)| one.has(candidate.cluster);
        for (index, candidate) in candidates.iter().enumerate().filter(inside) {
            let cluster = if weighs { candidate.cluster } else { "" };
            indices.entry(cluster).or_default().push(index);
        }
        let sum = indices.keys().map(|cluster| weight(cluster, node)).sum::<u64>().max(1);
        let share = |cluster| u64::from(one.share) * weight(cluster, node) / sum;
        all.extend(indices.into_iter().map(|(cluster, indices)| (share(cluster), indices)));
    }
    share_out(all, candidates, node, sticky)
}

fn has_weights(candidates: &[Candidate<'_>], node: &NodeContext) -> bool {
    let traffic = &node.facts.traffic;
    traffic.has_weights() && candidates.iter().any(|one| traffic.weight(one.cluster).is_some())
}

fn weight(cluster: &str, node: &NodeContext) -> u64 {
    node.facts.traffic.weight(cluster).unwrap_or(Traffic::DEFAULT_WEIGHT).into()
}

/// The slots of each candidate. `weighed`: weights, and the indices of the candidates that share each.
fn share_out(
    weighed: Vec<(u64, Vec<usize>)>,
    candidates: &[Candidate<'_>],
    node: &NodeContext,
    sticky: bool,
) -> Vec<u32> {
    let clusters: Vec<Cluster> = weighed
        .iter()
        .map(|(weight, indices)| Cluster { weight: *weight, backends: indices.len() as u64 })
        .collect();
    let turn = turn(node.node_name.as_deref().unwrap_or_default());
    let mut slots = vec![0; candidates.len()];
    for (((_, indices), Cluster { backends, .. }), slots_of_all) in
        weighed.into_iter().zip(&clusters).zip(slots_of(&clusters, sticky))
    {
        let slots_of_all = if sticky { slots_of_all.max(*backends) } else { slots_of_all };
        let (each, over) = (slots_of_all / backends, slots_of_all % backends);
        // The node with the turn before gives what is over to the endpoints before.
        let first = turn % backends * over % backends;
        for (nth, index) in (backends - first..).zip(indices) {
            let more = u64::from(nth % backends < over);
            slots[index] = u32::try_from(each + more).unwrap_or(u32::MAX);
        }
    }
    // The totals that were tried are multiples of the number of backends, which can be more than needed.
    let common = slots.iter().copied().fold(0, greatest_common_divisor).max(1);
    for count in &mut slots {
        *count /= common;
    }
    slots
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The slots of all backends of each cluster: the smallest numbers that give each cluster its share, and its backends equal
/// parts. The shares are right to 0.1 % if a few slots suffice, else to 1 %. If no number of slots gives both, the largest
/// number gives the shares alone.
fn slots_of(clusters: &[Cluster], sticky: bool) -> Vec<u64> {
    let backends: u64 = clusters.iter().map(|cluster| cluster.backends).sum();
    let weights: u64 = clusters.iter().map(|cluster| cluster.weight).sum();
    let few = FEW / backends.max(1);
    let most = PER_BACKEND.max(few);
    let most_of_all = if sticky { most.max(STICKY / backends.max(1)) } else { most };
    let slots = |factor| largest_remainder(clusters, weights, backends * factor);
    let is_right = |per_mille: u64, all: &[u64]| {
        let total: u64 = all.iter().sum();
        clusters.iter().zip(all).all(|(cluster, slots)| {
            let error = (slots * weights).abs_diff(cluster.weight * total);
            error * 1000 <= per_mille * weights * total
                && (slots % cluster.backends == 0 || slots / cluster.backends >= MANY)
                && *slots >= cluster.backends
        })
    };
    let right_to =
        |per_mille, most| (1..=most).map(slots).find(|slots: &Vec<u64>| is_right(per_mille, slots));
    right_to(1, few).or_else(|| right_to(10, most_of_all)).unwrap_or_else(|| slots(most_of_all))
}

/// Shares out `total` slots by weight. Each cluster gets its whole slots, and the largest fractions get one more.
fn largest_remainder(clusters: &[Cluster], weights: u64, total: u64) -> Vec<u64> {
    let weights = weights.max(1);
    let mut slots: Vec<u64> = clusters.iter().map(|one| one.weight * total / weights).collect();
    let mut by_fraction: Vec<usize> = (0..clusters.len()).collect();
    by_fraction.sort_by_key(|index| std::cmp::Reverse(clusters[*index].weight * total % weights));
    let remainder = total.saturating_sub(slots.iter().sum());
    for (_, index) in (0..remainder).zip(by_fraction) {
        slots[index] += 1;
    }
    slots
}

/// The turn of a node in giving slots to some endpoints of many. Nodes whose names end in successive numbers, before the
/// first dot, have successive turns. An agent reads no Node but its own, so between others chance decides.
fn turn(node_name: &str) -> u64 {
    let (label, domain) = node_name.split_once('.').unwrap_or((node_name, ""));
    let stem = label.trim_end_matches(|char: char| char.is_ascii_digit());
    // The nodes `worker` and `worker2` are such nodes too.
    let number = label[stem.len()..].parse().unwrap_or(1);
    let mut hasher = DefaultHasher::new();
    (stem, domain).hash(&mut hasher);
    hasher.finish().wrapping_add(number)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::core::model::{
        ClusterTraffic, Endpoint,
        fixture::{endpoint, knowing},
    };
    use crate::core::rules::candidate::numbered;

    /// Clusters `c0`, `c1` and so on, each with a weight and a number of endpoints. Endpoints come in turn, as their
    /// addresses do.
    fn site(clusters: &[(Option<u32>, usize)]) -> (NodeContext, Vec<(Arc<str>, Endpoint)>) {
        let name = |nth: usize| Arc::<str>::from(format!("c{nth}"));
        let wanted = |(nth, (weight, _)): (usize, &(Option<u32>, usize))| {
            (name(nth), ClusterTraffic { weight: *weight, ..ClusterTraffic::default() })
        };
        let traffic = Traffic(clusters.iter().enumerate().map(wanted).collect());
        let most = clusters.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let has = |nth: usize, turn: usize| turn < clusters[nth].1;
        let endpoints = (0..most)
            .flat_map(|turn| (0..clusters.len()).filter(move |nth| has(*nth, turn)))
            .map(|nth| (name(nth), endpoint("")))
            .collect();
        (knowing(NodeContext::default(), |facts| facts.traffic = traffic), endpoints)
    }

    /// The slots of each cluster's endpoints.
    fn slots(clusters: &[(Option<u32>, usize)]) -> Option<Vec<Vec<u32>>> {
        slots_if(clusters, false)
    }

    fn slots_if(clusters: &[(Option<u32>, usize)], sticky: bool) -> Option<Vec<Vec<u32>>> {
        let (node, endpoints) = site(clusters);
        let slots = by_weight(&numbered(&endpoints), &node, sticky)?;
        let mut by_cluster: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
        for ((cluster, _), slots) in endpoints.iter().zip(slots) {
            by_cluster.entry(Arc::clone(cluster)).or_default().push(slots);
        }
        for slots in by_cluster.values_mut() {
            slots.sort_unstable();
        }
        Some(by_cluster.into_values().collect())
    }

    #[test]
    fn a_cluster_gets_its_weight_whatever_its_endpoints_are() {
        for (clusters, expected) in [
            (vec![(None, 3), (None, 1)], None),
            (vec![(Some(90), 1), (Some(10), 1)], Some(vec![vec![9], vec![1]])),
            (vec![(Some(90), 2), (Some(10), 2)], Some(vec![vec![9; 2], vec![1; 2]])),
            (vec![(Some(50), 3), (None, 1)], Some(vec![vec![1; 3], vec![6]])),
            (vec![(Some(100), 3), (None, 1)], Some(vec![vec![1; 3], vec![3]])),
            (vec![(Some(100), 2), (None, 2)], Some(vec![vec![1; 2]; 2])),
            (vec![(Some(7), 4)], Some(vec![vec![1; 4]])),
            (vec![(Some(333), 1), (Some(667), 1)], Some(vec![vec![1], vec![2]])),
            (vec![(Some(1000), 2), (Some(1), 1)], Some(vec![vec![1; 2], vec![0]])),
        ] {
            assert_eq!(slots(&clusters), expected, "{clusters:?}");
        }
    }

    /// One percent of 160 slots is two: eight of ten endpoints get none.
    #[test]
    fn a_share_can_be_smaller_than_its_endpoints_are_many() {
        let slots = slots(&[(Some(99), 10), (Some(1), 10)]).unwrap();
        assert_eq!(slots[1], [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    /// The endpoints of the last cluster that these nodes use together, and how many slots each node has for them.
    fn used(clusters: &[(Option<u32>, usize)], nodes: &[&str]) -> (usize, usize) {
        let (node, endpoints) = site(clusters);
        let last = format!("c{}", clusters.len() - 1);
        let mut used = std::collections::BTreeSet::new();
        let mut each = 0;
        for name in nodes {
            let node = NodeContext { node_name: Some((*name).to_owned()), ..node.clone() };
            let slots = by_weight(&numbered(&endpoints), &node, false).unwrap();
            let of_last = |(nth, count): &(usize, u32)| *endpoints[*nth].0 == *last && *count > 0;
            let those: Vec<_> = (0..).zip(slots).filter(of_last).map(|(nth, _)| nth).collect();
            each = those.len();
            used.extend(those);
        }
        (used.len(), each)
    }

    #[test]
    fn numbered_nodes_use_all_endpoints_as_far_as_their_slots_suffice() {
        let (of_four, of_two) = ([(Some(97), 3), (Some(3), 6)], [(Some(99), 10), (Some(1), 10)]);
        for nodes in [
            ["c1-node1", "c1-node2", "c1-node3"],
            ["node-09", "node-10", "node-11"],
            ["kind-worker", "kind-worker2", "kind-worker3"],
            ["n8.east.example", "n9.east.example", "n10.east.example"],
        ] {
            assert_eq!(used(&of_four, &nodes[..2]), (6, 4), "{nodes:?}");
            assert_eq!(used(&of_two, &nodes), (6, 2), "{nodes:?}");
        }
        // Of others, and of numbers with a gap, as many as chance allows.
        let nodes: Vec<_> = (0..40).map(|nth| format!("{:x}-a", nth * 7919)).collect();
        let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
        assert_eq!(used(&of_two, &nodes), (10, 2));
    }

    #[test]
    fn clients_with_affinity_lose_no_endpoint_to_weights() {
        for (clusters, percent) in [
            (vec![(Some(99), 4), (Some(1), 3)], 2.0),
            (vec![(Some(1000), 4), (Some(1), 3)], 1.0),
            (vec![(Some(99), 50), (Some(1), 10)], 2.0),
            // Too many for the share: all of them have a slot, and the cluster gets more.
            (vec![(Some(99), 100), (Some(1), 400)], 11.0),
        ] {
            let slots = slots_if(&clusters, true).unwrap();
            assert!(slots.iter().flatten().all(|count| *count > 0), "{clusters:?}: {slots:?}");
            let total: u32 = slots.iter().flatten().sum();
            let share = f64::from(slots[1].iter().sum::<u32>()) * 100.0 / f64::from(total);
            assert!(share <= percent, "{clusters:?}: {share} %");
            assert!(total <= 4_500, "{total} slots");
        }
        let few = [(Some(90), 2), (Some(10), 2)];
        assert_eq!(slots_if(&few, true), slots(&few), "nothing more where it needs nothing");
    }

    proptest! {
        #[test]
        fn shares_are_right_and_slots_few(
            clusters in vec((prop_oneof![Just(None), (1..=1000_u32).prop_map(Some)], 1..40_usize), 1..6),
        ) {
            let Some(slots) = slots(&clusters) else {
                prop_assert!(clusters.iter().all(|(weight, _)| weight.is_none()));
                return Ok(());
            };
            let weight = |(weight, _): &(Option<u32>, usize)| f64::from(weight.unwrap_or(100));
            let weights: f64 = clusters.iter().map(weight).sum();
            let total: u32 = slots.iter().flatten().sum();
            let backends: usize = clusters.iter().map(|(_, count)| count).sum();
            prop_assert!(total as usize <= (8 * backends).max(128), "{total} slots");
            for (cluster, slots) in clusters.iter().zip(slots) {
                let share = f64::from(slots.iter().sum::<u32>()) / f64::from(total);
                prop_assert!((share - weight(cluster) / weights).abs() <= 0.01, "{share}");
                let (least, most) = (slots[0], slots[slots.len() - 1]);
                prop_assert!(most - least <= 1, "{slots:?}");
            }
        }
    }
}
