//! Which of its candidates a frontend gets as backends: each preference keeps some of the candidates that the one before
//! kept.
//!
//! The order is the one of kube-proxy's `CategorizeEndpoints`, which knows no clusters. In this file an endpoint drains if
//! it terminates and still serves; a cluster is drained if its operators say so.

use std::sync::Arc;

use super::{
    candidate::Candidate,
    ejection,
    fate::{Fallback, Fate, Recorder},
    problem::ObjectProblem,
    spill::{SpillContext, SpillRule, Tally},
    tier::{Tier, tiers},
    topology::{self, Distribution},
    traffic_policy::{LocalNode, TrafficPolicy},
};
use crate::model::{NodeContext, Protocol, ServiceImport, TierShare, TierState};

/// The preferences of an import, in the order in which they apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Preferences(Vec<Preference>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Preference {
    /// Keeps the endpoints on this node. If the agent does not know its node and cluster, no endpoint is
    /// local, and every client is refused.
    OnThisNode,
    /// Keeps the clusters that are not drained, if one of their endpoints is ready. If none is, all candidates stay.
    NotDrained,
    /// Keeps the backends that answer clients of this node, within limits. For UDP it keeps all.
    NotEjected,
    /// Keeps the clusters of the first tier that has an endpoint which is ready or draining. A tier whose
    /// endpoints all drain comes before later tiers, as in KEP-5939. If no tier has one, all candidates stay.
    FirstTier(Vec<Tier>),
    /// Keeps the tiers that have a share by the rule for spill.
    TiersWithShare(Vec<Tier>, SpillRule),
    /// Keeps the ready endpoints, else those that drain.
    ReadyElseDraining,
    /// Keeps ready endpoints by their hints, else by the import's `trafficDistribution`. If tiers have shares, it counts
    /// inside each of them.
    Near(Option<Distribution>),
}

impl Preferences {
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
        let tiers = tiers(import, node).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        let spill = SpillRule::of(import, &mut problems);
        let ejects = ejection::is_on(import, node, &mut problems);
        let distribution = Distribution::of(import).unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        Ok((Self::in_order(policy, ejects, tiers, spill, distribution), problems))
    }

    fn in_order(
        policy: TrafficPolicy,
        ejects: bool,
        tiers: Vec<Tier>,
        spill: Option<SpillRule>,
        distribution: Option<Distribution>,
    ) -> Self {
        let local = policy == TrafficPolicy::Local;
        let of_tiers = match spill {
            _ if tiers.is_empty() => None,
            None => Some(Preference::FirstTier(tiers)),
            Some(rule) => Some(Preference::TiersWithShare(tiers, rule)),
        };
        let list = [
            local.then_some(Preference::OnThisNode),
            Some(Preference::NotDrained),
            ejects.then_some(Preference::NotEjected),
            of_tiers,
            Some(Preference::ReadyElseDraining),
            (!local).then_some(Preference::Near(distribution)),
        ];
        Self(list.into_iter().flatten().collect())
    }

    /// Whether backends that do not answer are ejected.
    pub(super) fn eject(&self) -> bool {
        self.0.contains(&Preference::NotEjected)
    }

    /// Keeps the candidates that become backends. There is one candidate per address. Returns the share of each tier, if
    /// the import asks for spill.
    pub(super) fn keep(
        &self,
        candidates: &mut Vec<Candidate<'_>>,
        node: &NodeContext,
        spill: &mut SpillContext<'_>,
        recorder: &mut impl Recorder,
    ) -> Vec<TierShare> {
        let mut shares = Vec::new();
        for preference in &self.0 {
            preference.keep(candidates, node, spill, &mut shares, recorder);
        }
        shares
    }
}

impl Preference {
    /// Tells the recorder the fate of the candidates that it does not keep.
    fn keep(
        &self,
        candidates: &mut Vec<Candidate<'_>>,
        node: &NodeContext,
        spill: &mut SpillContext<'_>,
        shares: &mut Vec<TierShare>,
        recorder: &mut impl Recorder,
    ) {
        match self {
            Self::OnThisNode => recorder.step(candidates, |candidates| {
                let local = LocalNode::of(node).ok();
                candidates.retain(|one| {
                    local.is_some_and(|local| local.hosts(one.cluster, one.endpoint.node_name()))
                });
                Fate::OtherNode
            }),
            Self::NotDrained => recorder.step(candidates, |candidates| {
                let traffic = &node.facts.traffic;
                let stays =
                    |one: &Candidate<'_>| !traffic.is_passed_over(one.cluster, one.address.ip());
                if candidates.iter().any(|one| stays(one) && is_ready(one)) {
                    candidates.retain(stays);
                }
                Fate::Drained
            }),
            // Sockets of TCP say nothing of UDP.
            Self::NotEjected if spill.frontend.protocol == Protocol::Udp => {}
            Self::NotEjected => recorder.step(candidates, |candidates| {
                ejection::keep(candidates, spill.import, &node.ejections);
                Fate::Ejected
            }),
            Self::FirstTier(tiers) => {
                let mut first = None;
                recorder.step(candidates, |candidates| {
                    first = keep_first_tier(candidates, tiers, node);
                    Fate::OtherTier
                });
                if first != Some(0) && candidates.iter().any(is_usable) {
                    recorder.falls_back(|| Fallback::TierEmpty(why_not_first(tiers, first)));
                }
            }
            Self::TiersWithShare(tiers, rule) => {
                *shares = spill.decide(*rule, tiers, tallies(candidates, tiers, node));
                keep_shares(candidates, shares, recorder);
            }
            Self::ReadyElseDraining => recorder.step(candidates, |candidates| {
                if candidates.iter().any(is_ready) {
                    candidates.retain(is_ready);
                } else {
                    candidates.retain(|one| one.conditions().draining());
                }
                Fate::NotReady
            }),
            Self::Near(distribution) if shares.is_empty() => {
                recorder.step(candidates, |candidates| keep_near(candidates, *distribution, node));
            }
            Self::Near(distribution) => {
                for tier in shares {
                    recorder.step(candidates, |candidates| {
                        keep_near_of(tier, candidates, *distribution, node)
                    });
                }
            }
        }
    }
}

/// Returns the fate of the candidates that it does not keep.
fn keep_near(
    candidates: &mut Vec<Candidate<'_>>,
    distribution: Option<Distribution>,
    node: &NodeContext,
) -> Fate {
    if candidates.iter().all(is_ready) {
        topology::prefer(candidates, distribution, node)
    } else {
        Fate::Farther
    }
}

/// The same among the candidates of this tier.
fn keep_near_of(
    tier: &TierShare,
    candidates: &mut Vec<Candidate<'_>>,
    distribution: Option<Distribution>,
    node: &NodeContext,
) -> Fate {
    let (mut inside, others): (Vec<_>, Vec<_>) =
        candidates.iter().partition(|one| tier.has(one.cluster));
    let fate = keep_near(&mut inside, distribution, node);
    *candidates = others;
    candidates.extend(inside);
    candidates.sort_unstable_by_key(|one| one.address);
    fate
}

fn is_ready(candidate: &Candidate<'_>) -> bool {
    candidate.conditions().ready
}

fn is_usable(candidate: &Candidate<'_>) -> bool {
    let conditions = candidate.conditions();
    conditions.ready || conditions.draining()
}

/// Returns the position of the tier that it keeps.
fn keep_first_tier(
    candidates: &mut Vec<Candidate<'_>>,
    tiers: &[Tier],
    node: &NodeContext,
) -> Option<usize> {
    let first = tiers.iter().position(|tier| {
        candidates.iter().any(|one| tier.has(one.cluster, node) && is_usable(one))
    })?;
    candidates.retain(|candidate| tiers[first].has(candidate.cluster, node));
    Some(first)
}

/// Which tiers are empty, and which one serves.
fn why_not_first(tiers: &[Tier], first: Option<usize>) -> String {
    let named = |number: usize| format!("tier {} ({})", number + 1, tiers[number]);
    let Some(first) = first else {
        return "no tier has a usable endpoint, so all clusters serve it".to_owned();
    };
    let empty: Vec<_> = (0..first).map(named).collect();
    format!("{} has no usable endpoint, so {} serves it", empty.join(", "), named(first))
}

/// The endpoints of each tier, and of all other clusters. A cluster counts in the first tier that has it.
fn tallies(candidates: &[Candidate<'_>], tiers: &[Tier], node: &NodeContext) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); tiers.len() + 1];
    for candidate in candidates {
        let first = tiers.iter().position(|tier| tier.has(candidate.cluster, node));
        let tally = &mut tallies[first.unwrap_or(tiers.len())];
        let conditions = candidate.conditions();
        tally.clusters.insert(Arc::clone(candidate.cluster));
        tally.ready += u32::from(conditions.ready);
        tally.draining += u32::from(conditions.draining());
        tally.total += 1;
    }
    tallies
}

/// Keeps the tiers that have a share. If none has one, all candidates stay.
fn keep_shares(
    candidates: &mut Vec<Candidate<'_>>,
    shares: &[TierShare],
    recorder: &mut impl Recorder,
) {
    let of_tier = |candidate: &Candidate<'_>, is: fn(&TierShare) -> bool| {
        shares.iter().any(|tier| is(tier) && tier.has(candidate.cluster))
    };
    recorder.step(candidates, |candidates| {
        let waits = |tier: &TierShare| tier.share == 0 && tier.state == TierState::Waits;
        candidates.retain(|one| !(one.conditions().ready && of_tier(one, waits)));
        Fate::FailbackDelay
    });
    recorder.step(candidates, |candidates| {
        if shares.iter().any(|tier| tier.share > 0) {
            candidates.retain(|one| of_tier(one, |tier| tier.share > 0));
        }
        Fate::OtherTier
    });
}

#[cfg(test)]
impl From<TrafficPolicy> for Preferences {
    /// With nothing but this policy.
    fn from(policy: TrafficPolicy) -> Self {
        Self::in_order(policy, false, vec![], None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::candidate::{numbered, of_clusters};
    use crate::model::{
        ClusterAffinity, Endpoint, RejectionReason, Tiers, Traffic,
        fixture::{endpoint, import, knowing, node},
    };

    fn wants(affinity: &str) -> ServiceImport {
        let value = affinity.to_owned();
        let affinity = ClusterAffinity { annotation: "example.io/affinity", value };
        ServiceImport { cluster_affinity: Some(affinity.into()), ..import("shop/web") }
    }

    /// The last part of the address of each endpoint kept; they are numbered from 1.
    fn kept(affinity: &str, endpoints: &[(&str, Endpoint)]) -> Vec<u16> {
        let endpoints = of_clusters(endpoints);
        let mut candidates = numbered(&endpoints);
        keep_first_tier(&mut candidates, &tiers(&wants(affinity), &node()).unwrap(), &node());
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
        let nowhere = knowing(node(), |facts| facts.cluster_id = None);
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

    /// The first tier of clusters with a usable endpoint serves; all clusters do if none has one.
    #[test]
    fn results_of_selectors_are_tiers() {
        let ready = || endpoint("");
        let draining = || endpoint("").draining();
        let unready = || endpoint("").conditions(false, true, false);
        let serving = |results: &str, endpoints: &[(&str, Endpoint)]| -> Vec<u16> {
            let import =
                ServiceImport { tiers: Some(Box::new(Tiers::parse(results))), ..wants("remote") };
            let endpoints = of_clusters(endpoints);
            let mut candidates = numbered(&endpoints);
            keep_first_tier(&mut candidates, &tiers(&import, &node()).unwrap(), &node());
            candidates.iter().map(|candidate| candidate.address.port()).collect()
        };
        let near = r#"[{"clusters":["east"]},{"clusters":["east","west"]}]"#;
        for (endpoints, expected) in [
            (vec![("east", ready()), ("west", ready()), ("north", ready())], vec![1]),
            (vec![("east", unready()), ("west", ready()), ("north", ready())], vec![1, 2]),
            (vec![("east", draining()), ("west", ready())], vec![1]),
            (vec![("east", unready()), ("west", draining()), ("north", ready())], vec![1, 2]),
            (vec![("east", unready()), ("north", ready())], vec![1, 2]),
            (vec![("north", ready()), ("", ready())], vec![1, 2]),
        ] {
            assert_eq!(serving(near, &endpoints), expected, "{endpoints:?}");
        }
        let all = [("east", ready()), ("west", ready())];
        assert_eq!(serving(r#"[{},{"clusters":["west"]}]"#, &all), [2], "an empty tier is skipped");
        assert_eq!(serving("[{}]", &all), [1, 2]);
        let broken = ServiceImport { tiers: Some(Box::new(Tiers::parse("["))), ..wants("local") };
        let problem = tiers(&broken, &node()).unwrap_err();
        assert_eq!(problem.reason, RejectionReason::SelectorResultsInvalid);
    }

    #[test]
    fn the_operator_decides_where_the_owner_does_not() {
        let traffic = Traffic::parse(r#"{"east":{"preferred":true},"west":{"weight":1}}"#).unwrap();
        let node = knowing(node(), |facts| (facts.traffic, facts.cluster_id) = (traffic, None));
        assert_eq!(tiers(&import("shop/web"), &node), Ok(vec![Tier::Preferred]));
        assert_eq!(tiers(&wants("none"), &node), Ok(vec![]));
        let endpoints = of_clusters(&[("west", endpoint("")), ("east", endpoint(""))]);
        let mut candidates = numbered(&endpoints);
        keep_first_tier(&mut candidates, &[Tier::Preferred], &node);
        assert_eq!(candidates.len(), 1);
        assert_eq!(&**candidates[0].cluster, "east");
    }

    #[test]
    fn unknown_preferences_are_reported_and_ignored() {
        let import =
            ServiceImport { traffic_distribution: Some("PreferPlanet".into()), ..wants("nearby") };
        let (preferences, problems) = Preferences::of(&import, &node()).unwrap();
        assert_eq!(preferences, TrafficPolicy::Cluster.into());
        let reasons: Vec<_> = problems.iter().map(|problem| problem.reason).collect();
        assert_eq!(
            reasons,
            [RejectionReason::ClusterAffinityUnknown, RejectionReason::TrafficDistributionUnknown]
        );
    }
}
