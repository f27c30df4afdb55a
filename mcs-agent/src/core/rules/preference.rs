//! Which of its candidates a frontend gets as backends: each preference keeps some of the candidates that the one before
//! kept.
//!
//! The order is the one of kube-proxy's `CategorizeEndpoints`, which knows no clusters. In this file an endpoint drains if
//! it terminates and still serves; a cluster is drained if its operators say so.

use std::{fmt, iter, sync::Arc, time::Instant};

use super::{
    Fate,
    candidate::{Candidate, Fallback, Recorder},
    ejection,
    fields::ObjectProblem,
    tier::{Tier, tiers},
    topology::{self, Distribution, LocalNode, TrafficPolicy},
};
use crate::core::model::{FrontendId, NodeContext, ObjectKey, Protocol, Sections, ServiceImport};

/// A preference of the core.
type Keep = fn(&mut Vec<Candidate<'_>>, &mut Choice<'_>);

/// The preferences that come first.
const FIRST: [Keep; 3] = [on_this_node, not_drained, not_ejected];
/// The preferences that come behind those of features.
const LAST: [Keep; 3] = [first_tier, ready_else_draining, near];

/// A preference of a feature. It comes before the first tier is chosen.
pub(crate) trait Preference: fmt::Debug + Send {
    /// Reads what an import asks for in its settings, and tells what is wrong with them: the import is served without them.
    fn read(&self, import: &ServiceImport, wishes: &mut Wishes, problems: &mut Vec<ObjectProblem>);

    /// Removes the candidates that may not serve in any case, before all other choices. The recorder learns their fate.
    fn bound(&mut self, _: &mut Vec<Candidate<'_>>, _: &mut Choice<'_>) {}

    /// Keeps some of the candidates. There is one candidate per address. The recorder learns the fate of the others.
    fn keep(&mut self, _: &mut Vec<Candidate<'_>>, _: &mut Choice<'_>) {}

    /// When to evaluate which imports again although they do not change.
    fn due(&self) -> Box<dyn Iterator<Item = &(Instant, ObjectKey)> + '_> {
        Box::new(iter::empty())
    }

    /// A round begins to decide about these frontends, or about all: what is remembered of one about which it does not
    /// decide is over.
    fn begin(&mut self, _: Option<&[FrontendId]>) {}

    /// It has decided.
    fn end(&mut self) {}

    /// Forgets all: it was decided before all objects were read.
    fn forget(&mut self) {}

    /// Decides as the report of an agent says, in a process that explains it.
    fn recall(&mut self, _: &Sections) {}
}

/// What an import asks of the preferences.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wishes {
    policy: TrafficPolicy,
    /// The tiers of source clusters, in order.
    pub(crate) tiers: Vec<Tier>,
    /// Whether backends that do not answer are ejected.
    pub(crate) ejects: bool,
    distribution: Option<Distribution>,
}

/// What is chosen, and what preferences say of it.
pub(crate) struct Choice<'a> {
    pub(crate) node: &'a NodeContext,
    pub(crate) import: &'a ServiceImport,
    pub(crate) wishes: &'a Wishes,
    pub(crate) frontend: FrontendId,
    /// The time of the round. `None`: the present alone decides, and nothing is remembered.
    pub(crate) now: Option<Instant>,
    /// How new clients are shared out, if a preference does so.
    pub(crate) shares: Vec<Share>,
    /// Why a frontend without backends has none, if a preference has bounded it. Its clients do not stay with others.
    pub(crate) bounded: Option<Bounded>,
    /// What is said in the report of the import.
    pub(crate) sections: &'a mut Sections,
    pub(crate) recorder: &'a mut dyn Recorder,
}

/// A preference has bounded who may serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bounded {
    /// Whether clients leave what may not serve at once. They keep it else, as they keep what other preferences pass over.
    pub(crate) ends_clients: bool,
    /// For the report, if nothing else may serve.
    pub(crate) why_none: String,
}

/// What some source clusters get of the new clients, together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) clusters: Vec<Arc<str>>,
    /// Compared with the others.
    pub(crate) share: u32,
}

impl Share {
    pub(super) fn has(&self, cluster: &str) -> bool {
        self.clusters.iter().any(|one| **one == *cluster)
    }
}

impl Wishes {
    /// Also returns the problems that do not reject the import: a preference that the agent does not know
    /// is ignored, as kube-proxy does. Fails if the traffic policy is invalid.
    pub(super) fn of(
        import: &ServiceImport,
        node: &NodeContext,
        preferences: &Preferences,
    ) -> Result<(Self, Vec<ObjectProblem>), ObjectProblem> {
        let mut wishes = Self::from(TrafficPolicy::of(import)?);
        let mut problems = Vec::new();
        if wishes.policy == TrafficPolicy::Local {
            problems.extend(LocalNode::of(node).err());
        }
        wishes.tiers = tiers(import, node).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        for one in &preferences.of_features {
            one.read(import, &mut wishes, &mut problems);
        }
        wishes.distribution = Distribution::of(import).unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        Ok((wishes, problems))
    }
}

impl From<TrafficPolicy> for Wishes {
    /// Nothing but this policy.
    fn from(policy: TrafficPolicy) -> Self {
        Self { policy, ..Self::default() }
    }
}

/// The preferences in order, and what those of features remember.
#[derive(Debug, Default)]
pub(crate) struct Preferences {
    of_features: Vec<Box<dyn Preference>>,
    /// As in [`Choice`].
    pub(super) now: Option<Instant>,
}

impl Preferences {
    /// Adds one behind those of other features.
    pub(crate) fn add(&mut self, preference: Option<Box<dyn Preference>>) {
        self.of_features.extend(preference);
    }

    /// Removes the candidates that may not serve.
    pub(super) fn bound(&mut self, candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
        for one in &mut self.of_features {
            one.bound(candidates, choice);
        }
    }

    /// Keeps the candidates that become backends. There is one candidate per address.
    pub(super) fn keep(&mut self, candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
        for keep in FIRST {
            keep(candidates, choice);
        }
        for one in &mut self.of_features {
            one.keep(candidates, choice);
        }
        for keep in LAST {
            keep(candidates, choice);
        }
    }

    /// Calls each of the features'.
    pub(crate) fn each(&mut self, call: impl Fn(&mut dyn Preference)) {
        self.of_features.iter_mut().for_each(|one| call(one.as_mut()));
    }

    /// When to evaluate the next import again although it does not change.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due().map(|(at, _)| *at).min()
    }

    /// The imports to evaluate again in this round although they do not change.
    pub(super) fn due_now(&self) -> impl Iterator<Item = &ObjectKey> {
        self.due().filter(|(at, _)| Some(*at) <= self.now).map(|(_, import)| import)
    }

    fn due(&self) -> impl Iterator<Item = &(Instant, ObjectKey)> {
        self.of_features.iter().flat_map(|one| one.due())
    }
}

/// Keeps the endpoints on this node, if the traffic policy says so. If the agent does not know its node and cluster, no
/// endpoint is local, and every client is refused.
fn on_this_node(candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
    if choice.wishes.policy != TrafficPolicy::Local {
        return;
    }
    choice.recorder.step(candidates, &mut |candidates| {
        let local = LocalNode::of(choice.node).ok();
        candidates.retain(|one| {
            local.is_some_and(|local| local.hosts(one.cluster, one.endpoint.node_name()))
        });
        Fate::OtherNode
    });
}

/// Keeps the clusters that are not drained, if one of their endpoints is ready. If none is, all candidates stay.
fn not_drained(candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
    let traffic = &choice.node.facts.traffic;
    choice.recorder.step(candidates, &mut |candidates| {
        let stays = |one: &Candidate<'_>| !traffic.is_passed_over(one.cluster, one.address.ip());
        if candidates.iter().any(|one| stays(one) && is_ready(one)) {
            candidates.retain(stays);
        }
        Fate::Drained
    });
}

/// Keeps the backends that answer clients of this node, within limits. For UDP it keeps all: sockets of TCP say nothing of it.
fn not_ejected(candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
    if !choice.wishes.ejects || choice.frontend.protocol == Protocol::Udp {
        return;
    }
    choice.recorder.step(candidates, &mut |candidates| {
        ejection::keep(candidates, &choice.import.key, &choice.node.ejections);
        Fate::Ejected
    });
}

/// Keeps the clusters of the first tier that has an endpoint which is ready or draining. A tier whose endpoints all drain
/// comes before later tiers, as in KEP-5939. If no tier has one, or if tiers have shares, all candidates stay.
fn first_tier(candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
    let tiers = &choice.wishes.tiers;
    if tiers.is_empty() || !choice.shares.is_empty() {
        return;
    }
    let mut first = None;
    choice.recorder.step(candidates, &mut |candidates| {
        first = keep_first_tier(candidates, tiers, choice.node);
        Fate::OtherTier
    });
    if first != Some(0) && candidates.iter().any(is_usable) {
        choice.recorder.falls_back(&|| Fallback::TierEmpty(why_not_first(tiers, first)));
    }
}

/// Keeps the ready endpoints, else those that drain.
fn ready_else_draining(candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
    choice.recorder.step(candidates, &mut |candidates| {
        if candidates.iter().any(is_ready) {
            candidates.retain(is_ready);
        } else {
            candidates.retain(|one| one.conditions().draining());
        }
        Fate::NotReady
    });
}

/// Keeps ready endpoints by their hints, else by the import's `trafficDistribution`, unless the traffic policy has chosen. If
/// clusters have shares, it counts inside each of them.
fn near(candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
    let Choice { wishes, node, shares, recorder, .. } = choice;
    let Wishes { policy, distribution, .. } = wishes;
    if *policy == TrafficPolicy::Local {
        return;
    }
    if shares.is_empty() {
        recorder.step(candidates, &mut |candidates| keep_near(candidates, *distribution, node));
    }
    for share in shares {
        recorder.step(candidates, &mut |candidates| {
            keep_near_of(share, candidates, *distribution, node)
        });
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

/// The same among the candidates with this share.
fn keep_near_of(
    share: &Share,
    candidates: &mut Vec<Candidate<'_>>,
    distribution: Option<Distribution>,
    node: &NodeContext,
) -> Fate {
    let (mut inside, others): (Vec<_>, Vec<_>) =
        candidates.iter().partition(|one| share.has(one.cluster));
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

/// Ejects what does not answer of every import.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct EjectsAll;

#[cfg(test)]
impl Preference for EjectsAll {
    fn read(&self, _: &ServiceImport, wishes: &mut Wishes, _: &mut Vec<ObjectProblem>) {
        wishes.ejects = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{
        ClusterAffinity, Endpoint, RejectionReason, Tiers, Traffic,
        fixture::{endpoint, import, knowing, node},
    };
    use crate::core::rules::candidate::{numbered, of_clusters};

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
        let (wishes, problems) = Wishes::of(&import, &node(), &Preferences::default()).unwrap();
        assert_eq!(wishes, TrafficPolicy::Cluster.into());
        let reasons: Vec<_> = problems.iter().map(|problem| problem.reason).collect();
        assert_eq!(
            reasons,
            [RejectionReason::ClusterAffinityUnknown, RejectionReason::TrafficDistributionUnknown]
        );
    }
}
