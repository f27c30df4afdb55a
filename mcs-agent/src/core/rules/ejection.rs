//! Which of the backends that do not answer clients of this node new clients do not get.

use std::{collections::BTreeMap, sync::Arc};

use super::candidate::Candidate;
use crate::core::model::{EjectionState, Ejections, ObjectKey};

/// A cluster with this many endpoints can be ejected as a whole.
const CLUSTER: usize = 3;

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
        let (all, dead) = clusters.entry(Arc::clone(one.cluster)).or_default();
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
    use crate::core::{
        model::{
            Ejection,
            fixture::{endpoint, key},
        },
        rules::candidate::{numbered, of_clusters},
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
}
