//! Endpoints that can become backends of one port, one per address, and their conditions.

use std::{net::SocketAddr, sync::Arc};

use super::name;
use crate::model::{Backend, Endpoint};

/// An endpoint that can become a backend, with its port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) address: SocketAddr,
    /// The full name. Empty if the slice names none.
    pub(super) cluster: &'a Arc<str>,
    pub(super) endpoint: &'a Endpoint,
}

impl Candidate<'_> {
    pub(super) fn conditions(&self) -> Conditions {
        Conditions::of(self.endpoint)
    }

    pub(super) fn backend(&self) -> Backend {
        Backend { address: self.address, cluster: name::cluster_in_maps(self.cluster) }
    }
}

/// An endpoint's conditions with kube-proxy's defaults (`endpointslicecache.go`): ready, serving and
/// not terminating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Conditions {
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
}

impl Conditions {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        Self {
            ready: endpoint.ready.unwrap_or(true),
            serving: endpoint.serving.unwrap_or(true),
            terminating: endpoint.terminating.unwrap_or(false),
        }
    }

    /// Whether it answers its present clients, whether or not new ones get it.
    pub(super) fn answers(self) -> bool {
        self.ready || self.serving
    }

    /// Whether it terminates and still answers. Such endpoints serve if none is ready (KEP-1669).
    pub(super) fn draining(self) -> bool {
        self.serving && self.terminating
    }
}

/// Sorts by address and keeps one candidate per address.
///
/// A pod that moves between slices is in both for a while, and a terminating pod's address can
/// already belong to another pod. The endpoint that is not terminating answers
/// (kube-proxy `endpointslicecache.go`). Next, ready comes before serving, and serving before the
/// others. Among equals, the slice whose name sorts first wins.
pub(super) fn keep_one_per_address(candidates: &mut Vec<Candidate<'_>>) {
    candidates.sort_by_key(|candidate| {
        let Conditions { ready, serving, terminating } = candidate.conditions();
        (candidate.address, terminating, !ready, !serving)
    });
    candidates.dedup_by_key(|candidate| candidate.address);
}

/// Test endpoints with the names of their clusters.
#[cfg(test)]
pub(super) fn of_clusters(endpoints: &[(&str, Endpoint)]) -> Vec<(Arc<str>, Endpoint)> {
    endpoints.iter().map(|(cluster, endpoint)| ((*cluster).into(), endpoint.clone())).collect()
}

/// Test candidates with the ports 1, 2 and so on. They do not use the endpoints' addresses.
#[cfg(test)]
pub(super) fn numbered<'a>(endpoints: &'a [(Arc<str>, Endpoint)]) -> Vec<Candidate<'a>> {
    let candidate = |((cluster, endpoint), port): (&'a (Arc<str>, Endpoint), u16)| Candidate {
        address: ([10, 1, 0, 1], port).into(),
        cluster,
        endpoint,
    };
    endpoints.iter().zip(1..).map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::endpoint;

    #[test]
    fn of_one_address_the_one_that_answers_stays() {
        let ready = || endpoint("10.1.0.1");
        let unready = || ready().conditions(false, true, false);
        let stopped = || ready().conditions(false, false, false);
        let draining = || ready().draining();
        let gone = || ready().conditions(false, false, true);
        let cluster = "".into();
        for (winner, losers) in [
            (ready(), vec![unready(), stopped(), draining(), gone()]),
            (unready(), vec![stopped(), draining(), gone()]),
            (stopped(), vec![draining(), gone()]),
            (draining(), vec![gone()]),
        ] {
            for loser in losers {
                for pair in [[&winner, &loser], [&loser, &winner]] {
                    let mut candidates = pair
                        .map(|endpoint| Candidate {
                            address: "10.1.0.1:80".parse().unwrap(),
                            cluster: &cluster,
                            endpoint,
                        })
                        .to_vec();
                    keep_one_per_address(&mut candidates);
                    assert_eq!(candidates.len(), 1);
                    assert_eq!(candidates[0].endpoint, &winner, "against {loser:?}");
                }
            }
        }
    }

    #[test]
    fn among_equals_the_first_stays() {
        let endpoint = endpoint("10.1.0.1");
        let [a, b, c] = ["a", "b", "c"].map(Arc::from);
        let of = |address: &str, cluster| Candidate {
            address: address.parse().unwrap(),
            cluster,
            endpoint: &endpoint,
        };
        let mut candidates =
            vec![of("10.1.0.1:81", &a), of("10.1.0.1:80", &b), of("10.1.0.1:80", &c)];
        keep_one_per_address(&mut candidates);
        let kept: Vec<_> = candidates.iter().map(|c| (c.address.port(), &**c.cluster)).collect();
        assert_eq!(kept, [(80, "b"), (81, "a")]);
    }

    #[test]
    fn fills_in_what_is_unset() {
        let yes = Some(true);
        let no = Some(false);
        for (ready, serving, terminating, expected_ready, expected_draining) in [
            (None, None, None, true, false),
            (yes, yes, no, true, false),
            (no, None, None, false, false),
            (no, yes, no, false, false),
            (None, None, yes, true, true),
            (no, None, yes, false, true),
            (no, yes, yes, false, true),
            (no, no, yes, false, false),
            (no, no, None, false, false),
        ] {
            let endpoint = endpoint("10.1.0.1").conditions(ready, serving, terminating);
            let conditions = Conditions::of(&endpoint);
            assert_eq!(
                (conditions.ready, conditions.draining()),
                (expected_ready, expected_draining),
                "{ready:?} {serving:?} {terminating:?}"
            );
            assert_eq!(conditions.answers(), ready != no || serving != no);
        }
    }
}
