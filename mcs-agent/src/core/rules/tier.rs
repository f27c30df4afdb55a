//! The source clusters that an import prefers, step by step.

use std::{fmt, sync::Arc};

use super::fields::ObjectProblem;
use crate::core::model::{ClusterAffinity, NodeContext, RejectionReason, ServiceImport};

/// The source clusters of one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Tier {
    ThisCluster,
    OtherClusters,
    /// The clusters that the operator prefers.
    Preferred,
    /// The clusters that a selector matches.
    Selected(Vec<Arc<str>>),
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisCluster => f.write_str("this cluster"),
            Self::OtherClusters => f.write_str("other clusters"),
            Self::Preferred => f.write_str("preferred clusters"),
            Self::Selected(clusters) => f.write_str(&clusters.join(", ")),
        }
    }
}

impl Tier {
    /// An endpoint whose slice names no cluster counts as one of another cluster.
    pub(crate) fn has(&self, cluster: &str, node: &NodeContext) -> bool {
        match self {
            Self::ThisCluster => node.facts.cluster_id.as_deref() == Some(cluster),
            Self::OtherClusters => node.facts.cluster_id.as_deref() != Some(cluster),
            Self::Preferred => node.facts.traffic.is_preferred(cluster),
            Self::Selected(clusters) => clusters.iter().any(|one| **one == *cluster),
        }
    }
}

/// The tiers that the owner of the service asks for, in order: by cluster selectors, else by the annotation about
/// preferred clusters. The operator decides where the owner says nothing.
pub(super) fn tiers(
    import: &ServiceImport,
    node: &NodeContext,
) -> Result<Vec<Tier>, ObjectProblem> {
    match import.tiers.as_deref() {
        Some(Ok(tiers)) => {
            return Ok(tiers.0.iter().map(|tier| Tier::Selected(tier.clusters.clone())).collect());
        }
        Some(Err(error)) => {
            let what = format!("the results of the cluster selectors are ignored: {error}");
            return Err(ObjectProblem::new(RejectionReason::SelectorResultsInvalid, what));
        }
        None => {}
    }
    let Some(affinity) = import.cluster_affinity.as_deref() else {
        let has_preferred = node.facts.traffic.has_preferred();
        return Ok(if has_preferred { vec![Tier::Preferred] } else { vec![] });
    };
    by_affinity(affinity, node)
}

/// The case of the annotation's value does not matter.
fn by_affinity(
    ClusterAffinity { annotation, value }: &ClusterAffinity,
    node: &NodeContext,
) -> Result<Vec<Tier>, ObjectProblem> {
    let tiers = match &*value.to_ascii_lowercase() {
        "" | "none" => return Ok(vec![]),
        "local" => [Tier::ThisCluster, Tier::OtherClusters],
        "remote" => [Tier::OtherClusters, Tier::ThisCluster],
        _ => {
            let what = format!("annotation {annotation} {value:?} is unknown and ignored");
            return Err(ObjectProblem::advised(RejectionReason::ClusterAffinityUnknown, what));
        }
    };
    if node.facts.cluster_id.is_none() {
        let what = format!(
            "annotation {annotation} {value:?} is ignored, since it is not known which endpoints \
             are in this cluster"
        );
        return Err(ObjectProblem::advised(RejectionReason::ClusterAffinityNeedsIdentity, what));
    }
    Ok(tiers.into())
}
