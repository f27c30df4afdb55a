//! What becomes of each endpoint of an import, and the recorder that learns it from the rules.

use std::{collections::BTreeSet, fmt, net::SocketAddr};

use serde::Serialize;

use super::{candidate::Candidate, port::Port, problem::ObjectProblem};
use crate::model::{Endpoint, Protocol, RejectionReason};

/// What becomes of an endpoint for one port. The serialised names are stable: `explain` prints them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// New clients get it.
    Used,
    /// It is not ready.
    NotReady,
    /// It terminates, and others are ready.
    Terminating,
    /// It is not on this node (`internalTrafficPolicy: Local`).
    OtherNode,
    /// Its cluster is drained, of weight 0, withdrawn or ejected, and another one has a ready endpoint.
    Drained,
    /// It did not answer clients of this node (passive health).
    Ejected,
    /// Another tier of clusters is preferred, and has a usable endpoint.
    OtherTier,
    /// Its tier has spilled, and gets its clients back after `failback-delay`.
    FailbackDelay,
    /// Its hints name other nodes or zones, and hints of other endpoints name this node or zone.
    TopologyHint,
    /// It is farther away than others (`trafficDistribution`).
    Farther,
    /// The share of its cluster is smaller than one slot for each endpoint, and other endpoints have the slots.
    NoSlot,
    /// Another endpoint has its address.
    Duplicate,
    /// Its slice lacks the port.
    NoSuchPort,
    /// The rules want it, and `--max-memory` has no room: the agent says so.
    NoRoom,
    /// The rules want it, and the maps do not have it.
    NotWritten,
    /// Its address cannot be used.
    #[serde(untagged)]
    Rejected(#[serde(serialize_with = "kebab")] RejectionReason),
}

impl fmt::Display for Fate {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reason) => f.write_str(&reason.to_string().replace('_', "-")),
            fate => fate.serialize(f),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn kebab<S: serde::Serializer>(reason: &RejectionReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Fate::Rejected(*reason))
}

impl Fate {
    /// In words, unless an endpoint is used or the rejection says why.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Used | Self::Rejected(_) => "",
            Self::NotReady => "not ready in their cluster",
            Self::Terminating => "they terminate, and others are ready",
            Self::OtherNode => "internalTrafficPolicy is Local, and they are not on this node",
            Self::Drained => {
                "their cluster is out of use (drained, of weight 0, withdrawn or ejected), and another one has a ready endpoint"
            }
            Self::Ejected => "they do not answer clients of this node (passive health)",
            Self::OtherTier => "preferred clusters have a usable endpoint",
            Self::FailbackDelay => {
                "their tier has spilled, and gets clients back after failback-delay"
            }
            Self::TopologyHint => "their hints name other nodes or zones",
            Self::Farther => "others are nearer (trafficDistribution)",
            Self::NoSlot => {
                "the share of their cluster is smaller than a slot for each, and others have the slots"
            }
            Self::Duplicate => "other endpoints have these addresses",
            Self::NoSuchPort => {
                "their slice has no port with the name and protocol of the import's"
            }
            Self::NoRoom => "--max-memory has no room",
            Self::NotWritten => "the maps do not have them",
        }
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
pub(super) trait Recorder {
    /// An endpoint cannot be used for any port.
    fn rejected(&mut self, _endpoint: &Endpoint, _problem: &ObjectProblem) {}

    /// The steps that follow are about the candidates for this port.
    fn port(&mut self, _port: &Port) {}

    /// Does a step, which may remove candidates. The step returns the fate of the candidates that it removes.
    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: impl FnOnce(&mut Vec<Candidate<'a>>) -> Fate,
    ) {
        step(candidates);
    }

    /// A preference would have kept nothing for this port.
    fn falls_back(&mut self, _fallback: impl FnOnce() -> Fallback) {}

    /// These candidates remain after the last step.
    fn used(&mut self, _candidates: &[Candidate<'_>]) {}
}

impl Recorder for () {}

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

/// The fate of an endpoint for one port of the import.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PortFate {
    /// The port's name; empty if unnamed. Absent if the fate is the same for all.
    pub port: Option<String>,
    /// The port's protocol. Absent if the fate is the same for all.
    pub protocol: Option<Protocol>,
    /// Where a backend would be; absent if the endpoint is no candidate.
    pub backend: Option<SocketAddr>,
    /// What becomes of it.
    pub fate: Fate,
    /// Why it is rejected, and what to do.
    pub message: Option<String>,
}

impl PortFate {
    /// The same fate for all ports.
    pub(super) const fn of_all(fate: Fate, message: Option<String>) -> Self {
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
        let fate = match fate {
            Fate::NotReady if candidate.conditions().draining() => Fate::Terminating,
            fate => fate,
        };
        let fate = PortFate { port, protocol, backend, fate, message: None };
        self.records.push(Record { endpoint: identity(candidate.endpoint), fate });
    }
}

impl Recorder for Fates {
    fn rejected(&mut self, endpoint: &Endpoint, problem: &ObjectProblem) {
        let message = Some(problem.message.clone());
        let fate = PortFate::of_all(Fate::Rejected(problem.reason), message);
        self.records.push(Record { endpoint: identity(endpoint), fate });
    }

    fn port(&mut self, port: &Port) {
        self.port = Some((port.name.clone(), port.protocol));
    }

    fn step<'a>(
        &mut self,
        candidates: &mut Vec<Candidate<'a>>,
        step: impl FnOnce(&mut Vec<Candidate<'a>>) -> Fate,
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

    fn falls_back(&mut self, fallback: impl FnOnce() -> Fallback) {
        let port = self.port.iter().map(|(name, _)| name.clone()).collect();
        self.fallbacks.insert((port, fallback()));
    }

    fn used(&mut self, candidates: &[Candidate<'_>]) {
        for candidate in candidates {
            self.record(candidate, Fate::Used);
        }
    }
}
