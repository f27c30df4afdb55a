//! The fates of the endpoints of an import, as the rules tell them.

use std::{collections::BTreeSet, net::SocketAddr};

use mcs_kube::reasons::Coded;
use serde::{Serialize, Serializer};

use crate::core::{
    model::{Endpoint, Protocol, RejectionReason},
    rules::{
        Fate,
        candidate::{Candidate, Fallback, Recorder},
        fields::{ObjectProblem, Port},
    },
};

/// The fates of endpoints.
#[derive(Debug, Default)]
pub(super) struct Fates {
    port: Option<(String, Protocol)>,
    records: Vec<Record>,
    /// With the name of the port; empty if unnamed.
    pub(super) fallbacks: BTreeSet<(String, Fallback)>,
}

#[derive(Debug)]
struct Record {
    /// The address of the [`Endpoint`] in memory, which tells endpoints with equal contents apart.
    endpoint: usize,
    fate: PortFate,
}

/// What becomes of an endpoint, or why its address cannot be used.
pub(super) type EndpointFate = Result<Fate, RejectionReason>;

/// The name of a reason of the rules in findings.
pub(super) fn hyphenated(reason: impl Coded) -> String {
    reason.name().replace('_', "-")
}

/// In one word.
pub(super) fn word(fate: EndpointFate) -> String {
    fate.map_or_else(hyphenated, |fate| fate.to_string())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn as_word<S: Serializer>(fate: &EndpointFate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&word(*fate))
}

/// The fate of an endpoint for one port of the import.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct PortFate {
    /// The port's name; empty if unnamed. Absent if the fate is the same for all.
    pub(super) port: Option<String>,
    /// The port's protocol. Absent if the fate is the same for all.
    pub(super) protocol: Option<Protocol>,
    /// Where a backend would be; absent if the endpoint is no candidate.
    pub(super) backend: Option<SocketAddr>,
    /// What becomes of it.
    #[serde(serialize_with = "as_word")]
    pub(super) fate: EndpointFate,
    /// Why it is rejected, and what to do.
    pub(super) message: Option<String>,
}

impl PortFate {
    /// The same fate for all ports.
    pub(super) const fn of_all(fate: EndpointFate, message: Option<String>) -> Self {
        Self { port: None, protocol: None, backend: None, fate, message }
    }
}

fn identity(endpoint: &Endpoint) -> usize {
    std::ptr::from_ref(endpoint).addr()
}

impl Fates {
    /// The fates of an endpoint, which must be the same object that the rules read.
    pub(super) fn of(&self, endpoint: &Endpoint) -> Vec<PortFate> {
        let of_this = self.records.iter().filter(|record| record.endpoint == identity(endpoint));
        of_this.map(|record| record.fate.clone()).collect()
    }

    fn record(&mut self, candidate: &Candidate<'_>, fate: Fate) {
        let (port, protocol) = self.port.clone().unzip();
        let backend = Some(candidate.address);
        let fate = Ok(match fate {
            Fate::NotReady if candidate.conditions().draining() => Fate::Terminating,
            fate => fate,
        });
        let fate = PortFate { port, protocol, backend, fate, message: None };
        self.records.push(Record { endpoint: identity(candidate.endpoint), fate });
    }
}

impl Recorder for Fates {
    fn rejected(&mut self, endpoint: &Endpoint, problem: &ObjectProblem) {
        let message = Some(problem.message.clone());
        let fate = PortFate::of_all(Err(problem.reason), message);
        self.records.push(Record { endpoint: identity(endpoint), fate });
    }

    fn port(&mut self, port: &Port) {
        self.port = Some((port.name.clone(), port.protocol));
    }

    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: &mut dyn FnMut(&mut Vec<Candidate<'a>>) -> Fate,
    ) {
        let before = candidates.clone();
        let fate = step(candidates);
        let is_left = |one: &Candidate<'_>| {
            candidates.iter().any(|left| {
                left.address == one.address && identity(left.endpoint) == identity(one.endpoint)
            })
        };
        for gone in before.iter().filter(|one| !is_left(one)) {
            self.record(gone, fate);
        }
    }

    fn falls_back(&mut self, fallback: &dyn Fn() -> Fallback) {
        let port = self.port.iter().map(|(name, _)| name.clone()).collect();
        self.fallbacks.insert((port, fallback()));
    }

    fn used(&mut self, candidates: &[Candidate<'_>]) {
        for candidate in candidates {
            self.record(candidate, Fate::Used);
        }
    }
}
