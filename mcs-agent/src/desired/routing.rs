//! What an import says about which of its endpoints its clients get.

use super::{
    problem::ObjectProblem,
    tier::{self, Tier},
    topology::Distribution,
    traffic_policy::{LocalNode, TrafficPolicy},
};
use crate::model::{NodeContext, ServiceImport};

/// The fields and annotations of an import that select among its endpoints, in the order in which they apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Routing {
    pub(super) policy: TrafficPolicy,
    /// Source clusters in the order of preference. An empty list prefers none.
    pub(super) tiers: Vec<Tier>,
    pub(super) distribution: Option<Distribution>,
}

impl Routing {
    /// Also returns the problems that do not reject the import: a preference that the agent does not know
    /// is ignored, as kube-proxy does. Fails if the traffic policy is invalid.
    pub(super) fn of(
        import: &ServiceImport,
        node: &NodeContext,
    ) -> Result<(Self, Vec<ObjectProblem>), ObjectProblem> {
        let policy = TrafficPolicy::of(import)?;
        let mut problems = Vec::new();
        if policy == TrafficPolicy::Local {
            problems.extend(LocalNode::of(node).err());
        }
        let tiers = tier::tiers(import, node).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        let distribution = Distribution::of(import).unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        Ok((Self { policy, tiers, distribution }, problems))
    }
}

#[cfg(test)]
impl From<TrafficPolicy> for Routing {
    /// Without preferences.
    fn from(policy: TrafficPolicy) -> Self {
        Self { policy, tiers: vec![], distribution: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        RejectionReason,
        fixture::{import, node},
    };

    #[test]
    fn unknown_preferences_are_reported_and_ignored() {
        let import = ServiceImport {
            cilium_affinity: Some("nearby".into()),
            traffic_distribution: Some("PreferPlanet".into()),
            ..import("shop/web")
        };
        let (routing, problems) = Routing::of(&import, &node()).unwrap();
        assert_eq!(routing, TrafficPolicy::Cluster.into());
        let reasons: Vec<_> = problems.iter().map(|problem| problem.reason).collect();
        assert_eq!(
            reasons,
            [RejectionReason::ClusterAffinityUnknown, RejectionReason::TrafficDistributionUnknown]
        );
    }
}
