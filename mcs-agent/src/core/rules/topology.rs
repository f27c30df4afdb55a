//! Which endpoints are near: the topology hints of slices, and `internalTrafficPolicy` of an import.

use super::{Fate, candidate::Candidate, fields::ObjectProblem};
use crate::core::model::{NodeContext, RejectionReason, ServiceImport};

/// `trafficDistribution` of an import (KEP-3015).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Distribution {
    /// Endpoints of this node's zone are preferred.
    SameZone,
    /// Endpoints on this node are preferred, then endpoints of its zone.
    SameNode,
}

impl Distribution {
    /// `PreferClose` is the former name of `PreferSameZone`.
    pub(super) fn of(import: &ServiceImport) -> Result<Option<Self>, ObjectProblem> {
        match import.traffic_distribution.as_deref() {
            None | Some("") => Ok(None),
            Some("PreferSameZone" | "PreferClose") => Ok(Some(Self::SameZone)),
            Some("PreferSameNode") => Ok(Some(Self::SameNode)),
            Some(other) => Err(ObjectProblem::advised(
                RejectionReason::TrafficDistributionUnknown,
                format_args!("trafficDistribution {other:?} is unknown and ignored"),
            )),
        }
    }
}

/// Keeps the endpoints whose hints name this node or zone. Without such hints the import's
/// `trafficDistribution` decides by where the endpoints run. The candidates are ready. Returns the fate of the others.
pub(super) fn prefer(
    candidates: &mut Vec<Candidate<'_>>,
    distribution: Option<Distribution>,
    node: &NodeContext,
) -> Fate {
    if prefer_hinted(candidates, node) {
        return Fate::TopologyHint;
    }
    if let Some(distribution) = distribution {
        prefer_near(candidates, distribution, node);
    }
    Fate::Farther
}

/// Keeps the endpoints on this node if the import asks for them and there are any, else the endpoints of this
/// node's zone, else all. A controller of Kubernetes writes hints with the same result.
///
/// Zones span clusters. Node names repeat across clusters, so only an endpoint of this cluster is on
/// this node.
fn prefer_near(
    candidates: &mut Vec<Candidate<'_>>,
    distribution: Distribution,
    node: &NodeContext,
) {
    let local = LocalNode::of(node).ok();
    let on_node = |candidate: &Candidate<'_>| {
        local.is_some_and(|local| local.hosts(candidate.cluster, candidate.endpoint.node_name()))
    };
    let in_zone = |candidate: &Candidate<'_>| {
        node.facts.zone.is_some() && candidate.endpoint.zone() == node.facts.zone.as_deref()
    };
    if distribution == Distribution::SameNode && candidates.iter().any(on_node) {
        candidates.retain(on_node);
    } else if candidates.iter().any(in_zone) {
        candidates.retain(in_zone);
    }
}

/// Keeps the endpoints with a hint for this node, else the endpoints with a hint for its zone. Without either
/// hint it keeps all and returns false. This is the rule of kube-proxy's `topologyModeFromHints`.
///
/// A kind of hint counts only if every endpoint has one and some hint names this node or zone.
/// Otherwise the rollout of the hints is not complete. Node names repeat across clusters, so a hint
/// for this node counts only on an endpoint of this cluster.
fn prefer_hinted(candidates: &mut Vec<Candidate<'_>>, node: &NodeContext) -> bool {
    let for_node = |candidate: &Candidate<'_>| {
        node.facts.cluster_id.as_deref() == Some(&**candidate.cluster)
            && names(candidate.endpoint.for_nodes(), node.node_name.as_deref())
    };
    let for_zone = |candidate: &Candidate<'_>| {
        names(candidate.endpoint.for_zones(), node.facts.zone.as_deref())
    };
    let all = |hinted: fn(&Candidate<'_>) -> bool| candidates.iter().all(hinted);
    if all(|c| !c.endpoint.for_nodes().is_empty()) && candidates.iter().any(for_node) {
        candidates.retain(for_node);
    } else if all(|c| !c.endpoint.for_zones().is_empty()) && candidates.iter().any(for_zone) {
        candidates.retain(for_zone);
    } else {
        return false;
    }
    true
}

fn names(hints: &[String], ours: Option<&str>) -> bool {
    ours.is_some_and(|ours| hints.iter().any(|hint| hint == ours))
}

/// `internalTrafficPolicy` of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum TrafficPolicy {
    /// Every endpoint serves.
    #[default]
    Cluster,
    /// Only endpoints on this node serve (KEP-2086).
    Local,
}

impl TrafficPolicy {
    /// `Cluster` is the default.
    pub(super) fn of(import: &ServiceImport) -> Result<Self, ObjectProblem> {
        match import.internal_traffic_policy.as_deref() {
            None | Some("" | "Cluster") => Ok(Self::Cluster),
            Some("Local") => Ok(Self::Local),
            Some(other) => Err(ObjectProblem::advised(
                RejectionReason::TrafficPolicyInvalid,
                format_args!("internalTrafficPolicy {other:?} is unknown"),
            )),
        }
    }
}

/// The name of this node and of its cluster. Node names repeat across clusters, so an endpoint is
/// local only if both match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LocalNode<'a> {
    pub(super) node_name: &'a str,
    pub(super) cluster_id: &'a str,
}

impl<'a> LocalNode<'a> {
    /// Fails if a flag is missing: the agent then does not know which endpoints are local.
    pub(super) fn of(node: &'a NodeContext) -> Result<Self, ObjectProblem> {
        match (node.node_name.as_deref(), node.facts.cluster_id.as_deref()) {
            (Some(node_name), Some(cluster_id)) => Ok(Self { node_name, cluster_id }),
            (name, id) => {
                let missing: Vec<&str> = [("--node-name", name), ("--cluster-id", id)]
                    .into_iter()
                    .filter_map(|(flag, value)| value.is_none().then_some(flag))
                    .collect();
                Err(ObjectProblem::new(
                    RejectionReason::TrafficPolicyNeedsIdentity,
                    format!(
                        "internalTrafficPolicy Local refuses every client, since it is not known \
                         which endpoints are on this node; set {}",
                        missing.join(" and ")
                    ),
                ))
            }
        }
    }

    /// Whether an endpoint of `cluster` with this `nodeName` is on this node.
    pub(super) fn hosts(&self, cluster: &str, node_name: Option<&str>) -> bool {
        cluster == self.cluster_id && node_name == Some(self.node_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::{
            Endpoint,
            fixture::{endpoint, import, knowing, node},
        },
        rules::candidate::{numbered, of_clusters},
    };

    fn kept(node: &NodeContext, endpoints: &[(&str, Endpoint)]) -> Vec<usize> {
        preferred(None, node, endpoints)
    }

    /// The last part of the address of each endpoint kept; they are numbered from 1.
    fn preferred(
        distribution: Option<Distribution>,
        node: &NodeContext,
        endpoints: &[(&str, Endpoint)],
    ) -> Vec<usize> {
        let endpoints = of_clusters(endpoints);
        let mut candidates = numbered(&endpoints);
        prefer(&mut candidates, distribution, node);
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
        let without_cluster = knowing(node(), |facts| facts.cluster_id = None);
        for (node, expected) in [
            (NodeContext { node_name: None, ..node() }, vec![1]),
            (knowing(without_cluster.clone(), |facts| facts.zone = None), vec![1, 2]),
            (without_cluster, vec![1]),
            (NodeContext::default(), vec![1, 2]),
        ] {
            assert_eq!(kept(&node, &endpoints), expected, "{node:?}");
        }
    }

    fn at(node: &str, zone: &str) -> Endpoint {
        endpoint("10.1.0.1").node(node).in_zone(zone)
    }

    #[test]
    fn without_hints_the_distribution_decides() {
        use Distribution::{SameNode, SameZone};
        let nowhere = || endpoint("10.1.0.1");
        for (endpoints, zone, node_then_zone, why) in [
            (
                vec![("east", at("n1", "z1")), ("east", at("n2", "z1"))],
                vec![1, 2],
                vec![1],
                "one here",
            ),
            (vec![("east", at("n2", "z1")), ("east", at("n3", "z2"))], vec![1], vec![1], "a zone"),
            (
                vec![("west", at("n9", "z1")), ("east", at("n3", "z2"))],
                vec![1],
                vec![1],
                "zones span clusters",
            ),
            (
                vec![("west", at("n1", "z2")), ("east", at("n2", "z1"))],
                vec![2],
                vec![2],
                "another n1",
            ),
            (
                vec![("east", at("n1", "z2")), ("east", at("n2", "z1"))],
                vec![2],
                vec![1],
                "the node first",
            ),
            (
                vec![("east", nowhere()), ("east", at("n2", "z1"))],
                vec![2],
                vec![2],
                "one lacks a zone",
            ),
            (
                vec![("east", at("n2", "z2")), ("west", nowhere())],
                vec![1, 2],
                vec![1, 2],
                "none near",
            ),
            (
                vec![("east", at("n1", "z1")), ("east", at("n2", "z1").for_zone("z1"))],
                vec![1, 2],
                vec![1],
                "hints that are not complete",
            ),
            (
                vec![
                    ("east", at("n1", "z1").for_zone("z2")),
                    ("east", at("n2", "z2").for_zone("z1")),
                ],
                vec![2],
                vec![2],
                "hints come first",
            ),
        ] {
            assert_eq!(preferred(Some(SameZone), &node(), &endpoints), zone, "{why}");
            assert_eq!(preferred(Some(SameNode), &node(), &endpoints), node_then_zone, "{why}");
        }
    }

    #[test]
    fn a_distribution_needs_this_nodes_place() {
        let endpoints = [("east", at("n1", "z1")), ("east", at("n2", "z2"))];
        for (node, zone, node_then_zone) in [
            (knowing(node(), |facts| facts.zone = None), vec![1, 2], vec![1]),
            (NodeContext { node_name: None, ..node() }, vec![1], vec![1]),
            (
                knowing(node(), |facts| (facts.zone, facts.cluster_id) = (None, None)),
                vec![1, 2],
                vec![1, 2],
            ),
            (NodeContext::default(), vec![1, 2], vec![1, 2]),
        ] {
            assert_eq!(preferred(Some(Distribution::SameZone), &node, &endpoints), zone);
            assert_eq!(preferred(Some(Distribution::SameNode), &node, &endpoints), node_then_zone);
        }
        let unplaced = [("east", endpoint("10.1.0.1")), ("east", at("n2", "z2"))];
        let node = knowing(node(), |facts| facts.zone = None);
        assert_eq!(preferred(Some(Distribution::SameZone), &node, &unplaced), [1, 2]);
    }

    #[test]
    fn reads_the_distribution() {
        for (written, expected) in [
            (None, Some(None)),
            (Some(""), Some(None)),
            (Some("PreferClose"), Some(Some(Distribution::SameZone))),
            (Some("PreferSameZone"), Some(Some(Distribution::SameZone))),
            (Some("PreferSameNode"), Some(Some(Distribution::SameNode))),
            (Some("preferclose"), None),
        ] {
            let import = ServiceImport {
                traffic_distribution: written.map(Into::into),
                ..import("shop/web")
            };
            let distribution = Distribution::of(&import);
            assert_eq!(distribution.as_ref().ok().copied(), expected, "{written:?}");
            if let Err(problem) = distribution {
                assert_eq!(problem.reason, RejectionReason::TrafficDistributionUnknown);
                assert!(problem.message.contains(written.unwrap()), "{}", problem.message);
            }
        }
    }

    #[test]
    fn reads_the_policy() {
        for (written, expected) in [
            (None, Some(TrafficPolicy::Cluster)),
            (Some(""), Some(TrafficPolicy::Cluster)),
            (Some("Cluster"), Some(TrafficPolicy::Cluster)),
            (Some("Local"), Some(TrafficPolicy::Local)),
            (Some("local"), None),
            (Some("PreferLocal"), None),
        ] {
            let import = ServiceImport {
                internal_traffic_policy: written.map(str::to_owned),
                ..import("shop/web")
            };
            let policy = TrafficPolicy::of(&import);
            assert_eq!(policy.as_ref().ok().copied(), expected, "{written:?}");
            if let Err(problem) = policy {
                assert_eq!(problem.reason, RejectionReason::TrafficPolicyInvalid);
                assert!(problem.message.contains(written.unwrap()), "{}", problem.message);
            }
        }
    }

    #[test]
    fn the_local_node_takes_node_and_cluster() {
        for (node_name, cluster_id, advice) in [
            (Some("n1"), Some("east"), None),
            (None, Some("east"), Some("set --node-name")),
            (Some("n1"), None, Some("set --cluster-id")),
            (None, None, Some("set --node-name and --cluster-id")),
        ] {
            let named =
                NodeContext { node_name: node_name.map(str::to_owned), ..NodeContext::default() };
            let node = knowing(named, |facts| facts.cluster_id = cluster_id.map(str::to_owned));
            match (LocalNode::of(&node), advice) {
                (Ok(_), None) => {}
                (Err(problem), Some(advice)) => {
                    assert_eq!(problem.reason, RejectionReason::TrafficPolicyNeedsIdentity);
                    assert!(problem.message.ends_with(advice), "{}", problem.message);
                }
                (got, _) => panic!("{node_name:?} {cluster_id:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn local_is_this_node_of_this_cluster() {
        let local = LocalNode { node_name: "n1", cluster_id: "east" };
        for (cluster, node_name, is_local) in [
            ("east", Some("n1"), true),
            ("west", Some("n1"), false),
            ("", Some("n1"), false),
            ("east", Some("n2"), false),
            ("east", None, false),
        ] {
            assert_eq!(local.hosts(cluster, node_name), is_local, "{cluster} {node_name:?}");
        }
    }
}
