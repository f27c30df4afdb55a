//! Passive health: which imports ask for it, and which dead backends new clients do not get.

use std::collections::BTreeMap;

use mcs_kube::wish;

use super::{candidate::Candidate, problem::ObjectProblem};
use crate::model::{
    EjectionState, Ejections, NodeContext, ObjectKey, PassiveHealth, RejectionReason, ServiceImport,
};

/// A cluster with this many endpoints can be ejected as a whole.
const CLUSTER: usize = 3;

/// Whether the import has passive health. An annotation that is unknown is ignored.
pub(super) fn is_on(
    import: &ServiceImport,
    node: &NodeContext,
    problems: &mut Vec<ObjectProblem>,
) -> bool {
    let by_default = node.passive_health == PassiveHealth::All;
    match import.passive_health.as_deref() {
        _ if node.passive_health == PassiveHealth::Off => false,
        None => by_default,
        Some(text) => wish::passive_health(text).unwrap_or_else(|message| {
            problems.push(ObjectProblem::new(RejectionReason::PassiveHealthInvalid, message));
            by_default
        }),
    }
}

/// Keeps the candidates that new clients get. A source cluster goes as a whole if all its endpoints are dead, if they are
/// three or more, and if another cluster serves. Of the other candidates at most half go, and never the last one.
pub(super) fn keep(candidates: &mut Vec<Candidate<'_>>, import: &ObjectKey, ejections: &Ejections) {
    let ready = |one: &&Candidate<'_>| one.conditions().ready;
    let is_dead =
        |one: &Candidate<'_>| ejections.state(import, one.address) == Some(EjectionState::Ejected);
    if !candidates.iter().any(is_dead) {
        return;
    }
    // By cluster: how many endpoints are ready, and how many of these are dead.
    let mut clusters: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for one in candidates.iter().filter(ready) {
        let (all, dead) = clusters.entry(std::sync::Arc::clone(one.cluster)).or_default();
        *all += 1;
        *dead += usize::from(is_dead(one));
    }
    clusters.retain(|_, (all, dead)| all == dead && *all >= CLUSTER);
    let is_of_dead = |one: &Candidate<'_>| clusters.contains_key(one.cluster);
    if candidates.iter().filter(ready).any(|one| !is_of_dead(one) && !is_dead(one)) {
        candidates.retain(|one| !is_of_dead(one));
    }
    let mut room = candidates.iter().filter(ready).count() / 2;
    candidates.retain(|one| {
        let goes = room > 0 && one.conditions().ready && is_dead(one);
        room -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        desired::candidate::{numbered, of_clusters},
        model::{
            Ejection,
            fixture::{endpoint, import, key},
        },
    };

    fn ejections(ports: &[u16], state: EjectionState) -> Ejections {
        let ejection = |port: &u16| Ejection {
            import: key("shop/web"),
            backend: ([10, 1, 0, 1], *port).into(),
            cluster: "east".into(),
            state,
            times: 1,
            used: false,
        };
        ports.iter().map(ejection).collect::<Vec<_>>().iter().collect()
    }

    /// The endpoints that stay, of endpoints in these clusters that are numbered from 1.
    fn left(clusters: &[&str], dead: &[u16]) -> Vec<u16> {
        let endpoints: Vec<_> = clusters.iter().map(|name| (*name, endpoint(""))).collect();
        let endpoints = of_clusters(&endpoints);
        let mut candidates = numbered(&endpoints);
        keep(&mut candidates, &key("shop/web"), &ejections(dead, EjectionState::Ejected));
        candidates.iter().map(|one| one.address.port()).collect()
    }

    #[test]
    fn at_most_half_go_and_never_the_last() {
        for (endpoints, dead, expected) in [
            (1, vec![1], vec![1]),
            (2, vec![], vec![1, 2]),
            (2, vec![1], vec![2]),
            (2, vec![1, 2], vec![2]),
            (3, vec![1, 2], vec![2, 3]),
            (4, vec![2, 3], vec![1, 4]),
            (4, vec![1, 2, 3, 4], vec![3, 4]),
        ] {
            assert_eq!(left(&vec!["east"; endpoints], &dead), expected, "{endpoints} {dead:?}");
        }
    }

    #[test]
    fn a_dead_cluster_goes_as_a_whole_if_another_one_serves() {
        let (east, west) = (["east"; 3], ["west"; 1]);
        assert_eq!(left(&[&east[..], &west].concat(), &[1, 2, 3]), [4]);
        assert_eq!(left(&[&east[..], &west].concat(), &[1, 2]), [3, 4]);
        // Nobody is left.
        assert_eq!(left(&[&east[..], &west].concat(), &[1, 2, 3, 4]), [3, 4]);
        // Two are no cluster, and half of all three is one.
        assert_eq!(left(&["east", "east", "west"], &[1, 2]), [2, 3]);
        assert_eq!(left(&[&east[..], &east, &west, &west].concat(), &[1, 2, 3, 4, 5, 6, 7]), [8]);
    }

    #[test]
    fn what_is_not_ready_and_what_is_half_open_stays() {
        let endpoints = [endpoint(""), endpoint("").draining(), endpoint("")];
        let endpoints = of_clusters(&endpoints.map(|one| ("east", one)));
        let mut candidates = numbered(&endpoints);
        keep(&mut candidates, &key("shop/web"), &ejections(&[2], EjectionState::Ejected));
        assert_eq!(candidates.len(), 3);
        keep(&mut candidates, &key("shop/web"), &ejections(&[1], EjectionState::HalfOpen));
        assert_eq!(candidates.len(), 3);
        keep(&mut candidates, &key("shop/api"), &ejections(&[1], EjectionState::Ejected));
        assert_eq!(candidates.len(), 3, "the verdict is about another import");
    }

    #[test]
    fn owners_and_operators_decide() {
        use PassiveHealth::{All, Annotated, Off};
        for (flag, annotation, expected) in [
            (Annotated, None, (true, false)),
            (Annotated, Some("on"), (true, true)),
            (Annotated, Some("off"), (true, false)),
            (Annotated, Some("yes"), (false, false)),
            (All, None, (true, true)),
            (All, Some("off"), (true, false)),
            (All, Some("yes"), (false, true)),
            (Off, Some("on"), (true, false)),
        ] {
            let node = NodeContext { passive_health: flag, ..NodeContext::default() };
            let import =
                ServiceImport { passive_health: annotation.map(Into::into), ..import("shop/web") };
            let mut problems = Vec::new();
            let on = is_on(&import, &node, &mut problems);
            assert_eq!((problems.is_empty(), on), expected, "{flag:?} {annotation:?}");
        }
    }
}
