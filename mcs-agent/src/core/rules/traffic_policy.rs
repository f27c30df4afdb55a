//! `internalTrafficPolicy` of an import, and which endpoints are local to this node.

use super::problem::ObjectProblem;
use crate::core::model::{NodeContext, RejectionReason, ServiceImport};

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
    use crate::core::model::fixture::{import, knowing};

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
