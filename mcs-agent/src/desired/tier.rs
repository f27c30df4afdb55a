//! Prefers source clusters: the first tier of clusters with a usable endpoint serves alone.

use super::{candidate::Candidate, problem::ObjectProblem};
use crate::model::{NodeContext, RejectionReason, ServiceImport};

/// The source clusters of one step of preference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    ThisCluster,
    OtherClusters,
}

impl Tier {
    /// An endpoint whose slice names no cluster counts as one of another cluster.
    fn has(self, cluster: &str, cluster_id: &str) -> bool {
        match self {
            Self::ThisCluster => cluster == cluster_id,
            Self::OtherClusters => cluster != cluster_id,
        }
    }
}

/// The tiers that Cilium's affinity annotation asks for, in order. Cilium ignores the case of the value.
pub(super) fn tiers(
    import: &ServiceImport,
    node: &NodeContext,
) -> Result<Vec<Tier>, ObjectProblem> {
    let written = import.cilium_affinity.as_deref().unwrap_or_default();
    let tiers = match &*written.to_ascii_lowercase() {
        "" | "none" => return Ok(vec![]),
        "local" => vec![Tier::ThisCluster, Tier::OtherClusters],
        "remote" => vec![Tier::OtherClusters, Tier::ThisCluster],
        _ => {
            return Err(ObjectProblem::new(
                RejectionReason::ClusterAffinityUnknown,
                format!(
                    "annotation service.cilium.io/affinity {written:?} is unknown and ignored; use \
                     local, remote or none"
                ),
            ));
        }
    };
    if node.cluster_id.is_none() {
        return Err(ObjectProblem::new(
            RejectionReason::ClusterAffinityNeedsIdentity,
            format!(
                "annotation service.cilium.io/affinity {written:?} is ignored, since it is not known \
                 which endpoints are in this cluster; set --cluster-id"
            ),
        ));
    }
    Ok(tiers)
}

/// Keeps the candidates of the first tier that has one which is ready or draining. A tier whose endpoints
/// all drain comes before later tiers, as in KEP-5939. If no tier has one, all candidates stay.
pub(super) fn prefer(candidates: &mut Vec<Candidate<'_>>, tiers: &[Tier], node: &NodeContext) {
    let Some(cluster_id) = node.cluster_id.as_deref() else { return };
    let usable = |candidate: &Candidate<'_>| {
        let conditions = candidate.conditions();
        conditions.ready || conditions.draining()
    };
    let first = tiers
        .iter()
        .find(|tier| candidates.iter().any(|one| tier.has(one.cluster, cluster_id) && usable(one)));
    if let Some(tier) = first {
        candidates.retain(|candidate| tier.has(candidate.cluster, cluster_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::candidate::{numbered, of_clusters};
    use crate::model::{
        Endpoint,
        fixture::{endpoint, import, node},
    };

    fn wants(affinity: &str) -> ServiceImport {
        ServiceImport { cilium_affinity: Some(affinity.into()), ..import("shop/web") }
    }

    /// The last part of the address of each endpoint kept; they are numbered from 1.
    fn kept(affinity: &str, endpoints: &[(&str, Endpoint)]) -> Vec<u16> {
        let endpoints = of_clusters(endpoints);
        let mut candidates = numbered(&endpoints);
        prefer(&mut candidates, &tiers(&wants(affinity), &node()).unwrap(), &node());
        candidates.iter().map(|candidate| candidate.address.port()).collect()
    }

    #[test]
    fn the_first_tier_with_a_usable_endpoint_serves() {
        let ready = || endpoint("");
        let draining = || endpoint("").draining();
        let unready = || endpoint("").conditions(false, true, false);
        for (endpoints, local, remote) in [
            (vec![("east", ready()), ("west", ready())], vec![1], vec![2]),
            (vec![("east", ready()), ("", ready())], vec![1], vec![2]),
            (vec![("west", ready()), ("north", ready())], vec![1, 2], vec![1, 2]),
            (vec![("east", ready())], vec![1], vec![1]),
            (vec![("east", draining()), ("west", ready())], vec![1], vec![2]),
            (vec![("east", ready()), ("west", draining())], vec![1], vec![2]),
            (vec![("east", unready()), ("west", ready())], vec![2], vec![2]),
            (vec![("east", ready()), ("west", unready())], vec![1], vec![1]),
            (vec![("east", unready()), ("west", unready())], vec![1, 2], vec![1, 2]),
        ] {
            assert_eq!(kept("local", &endpoints), local, "{endpoints:?}");
            assert_eq!(kept("Remote", &endpoints), remote, "{endpoints:?}");
            let all: Vec<_> = (1..).take(endpoints.len()).collect();
            assert_eq!(kept("none", &endpoints), all);
            assert_eq!(kept("", &endpoints), all);
        }
    }

    #[test]
    fn affinity_needs_a_known_value_and_the_cluster() {
        let nowhere = NodeContext { cluster_id: None, ..node() };
        for (affinity, node, expected) in [
            ("nearby", node(), RejectionReason::ClusterAffinityUnknown),
            ("local", nowhere.clone(), RejectionReason::ClusterAffinityNeedsIdentity),
        ] {
            let problem = tiers(&wants(affinity), &node).unwrap_err();
            assert_eq!(problem.reason, expected);
            assert!(problem.message.contains(affinity), "{}", problem.message);
        }
        assert_eq!(tiers(&wants("none"), &nowhere), Ok(vec![]));
        assert_eq!(tiers(&import("shop/web"), &nowhere), Ok(vec![]));
    }
}
