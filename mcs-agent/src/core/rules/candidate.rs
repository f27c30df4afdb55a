//! Endpoints that can become backends of one port, one per address: their conditions, and what a
//! recorder learns of each from the rules.

use std::{fmt, net::SocketAddr, sync::Arc};

use mcs_kube::reasons::Fate;

use super::{name, port::Port, problem::ObjectProblem};
use crate::core::model::{Backend, Endpoint};

/// An endpoint that can become a backend, with its port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) address: SocketAddr,
    /// The full name. Empty if the slice names none.
    pub(crate) cluster: &'a Arc<str>,
    pub(crate) endpoint: &'a Endpoint,
}

impl Candidate<'_> {
    pub(crate) fn conditions(&self) -> Conditions {
        Conditions::of(self.endpoint)
    }

    pub(super) fn backend(&self) -> Backend {
        Backend { address: self.address, cluster: name::cluster_in_maps(self.cluster) }
    }
}

/// An endpoint's conditions with kube-proxy's defaults (`endpointslicecache.go`): ready, serving and
/// not terminating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conditions {
    pub(crate) ready: bool,
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
    pub(crate) fn draining(self) -> bool {
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
pub(crate) fn of_clusters(endpoints: &[(&str, Endpoint)]) -> Vec<(Arc<str>, Endpoint)> {
    endpoints.iter().map(|(cluster, endpoint)| ((*cluster).into(), endpoint.clone())).collect()
}

/// Test candidates with the ports 1, 2 and so on. They do not use the endpoints' addresses.
#[cfg(test)]
pub(crate) fn numbered<'a>(endpoints: &'a [(Arc<str>, Endpoint)]) -> Vec<Candidate<'a>> {
    let candidate = |((cluster, endpoint), port): (&'a (Arc<str>, Endpoint), u16)| Candidate {
        address: ([10, 1, 0, 1], port).into(),
        cluster,
        endpoint,
    };
    endpoints.iter().zip(1..).map(candidate).collect()
}

/// The fates of candidates that do not stay.
#[cfg(test)]
pub(crate) struct Fates(pub(crate) Vec<Fate>);

#[cfg(test)]
impl Recorder for Fates {
    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: &mut dyn FnMut(&mut Vec<Candidate<'a>>) -> Fate,
    ) {
        let before = candidates.len();
        let fate = step(candidates);
        self.0.extend((candidates.len()..before).map(|_| fate));
    }
}

/// A preference would have kept nothing, so the rules use the next choice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fallback {
    /// Clusters that are out of use serve.
    DrainedServe,
    /// Another tier than the first serves. The text says which tiers are empty, and which tier serves.
    TierEmpty(String),
    /// Endpoints that terminate serve.
    TerminatingServe,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DrainedServe => {
                "no other cluster has a ready endpoint, so clusters that are out of use serve it"
            }
            Self::TierEmpty(what) => what,
            Self::TerminatingServe => "all endpoints that serve it terminate",
        })
    }
}

/// Learns what the rules decide about endpoints, while they do. `()` learns nothing: the agent's own rounds use it.
pub(crate) trait Recorder {
    /// An endpoint cannot be used for any port.
    fn rejected(&mut self, _endpoint: &Endpoint, _problem: &ObjectProblem) {}

    /// The steps that follow are about the candidates for this port.
    fn port(&mut self, _port: &Port) {}

    /// Does a step, which may remove candidates. The step returns the fate of the candidates that it removes.
    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: &mut dyn FnMut(&mut Vec<Candidate<'a>>) -> Fate,
    ) {
        step(candidates);
    }

    /// A preference would have kept nothing for this port.
    fn falls_back(&mut self, _fallback: &dyn Fn() -> Fallback) {}

    /// These candidates remain after the last step.
    fn used(&mut self, _candidates: &[Candidate<'_>]) {}
}

impl Recorder for () {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::endpoint;

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
