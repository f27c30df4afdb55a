//! Topology hints: prefers the endpoints for this node or zone.

use super::candidate::Candidate;
use crate::model::NodeContext;

/// Keeps the endpoints with a hint for this node, else those with a hint for its zone, else all.
/// This is the rule of kube-proxy's `topologyModeFromHints`; the candidates are ready.
///
/// A kind of hint counts only if every endpoint has one and some hint names this node or zone.
/// Otherwise the rollout of the hints is not complete. Node names repeat across clusters, so a hint
/// for this node counts only on an endpoint of this cluster.
pub(super) fn prefer(candidates: &mut Vec<Candidate<'_>>, node: &NodeContext) {
    let for_node = |candidate: &Candidate<'_>| {
        node.cluster_id.as_deref() == Some(&**candidate.cluster)
            && names(candidate.endpoint.for_nodes(), node.node_name.as_deref())
    };
    let for_zone =
        |candidate: &Candidate<'_>| names(candidate.endpoint.for_zones(), node.zone.as_deref());
    let all = |hinted: fn(&Candidate<'_>) -> bool| candidates.iter().all(hinted);
    if all(|c| !c.endpoint.for_nodes().is_empty()) && candidates.iter().any(for_node) {
        candidates.retain(for_node);
    } else if all(|c| !c.endpoint.for_zones().is_empty()) && candidates.iter().any(for_zone) {
        candidates.retain(for_zone);
    }
}

fn names(hints: &[String], ours: Option<&str>) -> bool {
    ours.is_some_and(|ours| hints.iter().any(|hint| hint == ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::candidate::{numbered, of_clusters};
    use crate::model::{
        Endpoint,
        fixture::{endpoint, node},
    };

    /// The last part of the address of each endpoint kept; they are numbered from 1.
    fn kept(node: &NodeContext, endpoints: &[(&str, Endpoint)]) -> Vec<usize> {
        let endpoints = of_clusters(endpoints);
        let mut candidates = numbered(&endpoints);
        prefer(&mut candidates, node);
        candidates.iter().map(|candidate| candidate.address.port().into()).collect()
    }

    fn hinted(nodes: &[&str], zones: &[&str]) -> Endpoint {
        let plain = endpoint("10.1.0.1");
        let with_nodes = nodes.iter().fold(plain, |endpoint, name| endpoint.for_node(name));
        zones.iter().fold(with_nodes, |endpoint, name| endpoint.for_zone(name))
    }

    #[test]
    fn prefers_this_node_then_its_zone() {
        for (endpoints, expected, why) in [
            (vec![("east", hinted(&[], &[])), ("west", hinted(&[], &[]))], vec![1, 2], "no hints"),
            (
                vec![("east", hinted(&["n1"], &["z1"])), ("east", hinted(&["n2"], &["z1"]))],
                vec![1],
                "one for this node",
            ),
            (
                vec![("east", hinted(&["n2", "n1"], &[])), ("east", hinted(&["n2"], &[]))],
                vec![1],
                "several nodes in a hint",
            ),
            (
                vec![("east", hinted(&["n1"], &["z2"])), ("east", hinted(&[], &["z1"]))],
                vec![2],
                "one lacks the node hint: zones",
            ),
            (
                vec![("east", hinted(&["n2"], &["z1"])), ("east", hinted(&["n3"], &["z2"]))],
                vec![1],
                "none for this node: zones",
            ),
            (
                vec![("west", hinted(&["n1"], &["z2"])), ("east", hinted(&["n2"], &["z1"]))],
                vec![2],
                "another cluster's n1 is not this node: zones",
            ),
            (
                vec![("west", hinted(&["n1"], &[])), ("east", hinted(&["n1"], &[]))],
                vec![2],
                "the n1 of this cluster alone",
            ),
            (
                vec![("west", hinted(&[], &["z1"])), ("east", hinted(&[], &["z2"]))],
                vec![1],
                "zones span clusters",
            ),
            (
                vec![("east", hinted(&[], &["z1"])), ("east", hinted(&[], &[]))],
                vec![1, 2],
                "one lacks the zone hint: all",
            ),
            (
                vec![("east", hinted(&[], &["z2"])), ("east", hinted(&[], &["z3"]))],
                vec![1, 2],
                "none for this zone: all",
            ),
        ] {
            assert_eq!(kept(&node(), &endpoints), expected, "{why}");
        }
    }

    #[test]
    fn a_node_that_does_not_know_its_place_takes_all() {
        let endpoints = [("east", hinted(&["n1"], &["z1"])), ("east", hinted(&["n2"], &["z2"]))];
        let without_cluster = NodeContext { cluster_id: None, ..node() };
        for (node, expected) in [
            (NodeContext { node_name: None, ..node() }, vec![1]),
            (NodeContext { zone: None, ..without_cluster.clone() }, vec![1, 2]),
            (without_cluster, vec![1]),
            (NodeContext::default(), vec![1, 2]),
        ] {
            assert_eq!(kept(&node, &endpoints), expected, "{node:?}");
        }
    }
}
