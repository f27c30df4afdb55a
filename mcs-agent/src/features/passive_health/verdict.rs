//! The verdicts about backends: pure, with the time as an argument.
//!
//! A backend fails if it does not answer three connects of at least two clients within ten seconds, and answers none after
//! the first of them. A client is a network namespace, or a device in the packet path. The latest two connects of each
//! client count, so that one client alone ejects nothing. A pod can be a client of both paths. Where the agent connects too,
//! a namespace and a device count as two clients all the same. Answers of sockets are recorded from the first failure on. A
//! backend that fails is ejected unless it answers the agent. When its time is over it is half open: one answer to a
//! client, or to the agent, ends the ejection. One more failure that the agent confirms ejects it again.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    net::SocketAddr,
    sync::Arc,
};

use mcs_common::HealthRecord;

use crate::core::{
    kernel::flows::is_device,
    model::{Backend, Ejection, EjectionState, ObjectKey},
};

const SECOND: u64 = 1_000_000_000;
/// Failures that count together happen within this time.
const WINDOW: u64 = 10 * SECOND;
const FAILURES: usize = 3;
const CLIENTS: usize = 2;
/// How long a backend is ejected, times the number of its ejections.
const EJECTED: u64 = 30 * SECOND;
const MOST_TIMES: u32 = 10;
/// Ejections are forgotten this long after the last one ended.
const FORGET: u64 = 600 * SECOND;
/// What the agent alone was answered is remembered this long.
const ALONE: u64 = 60 * SECOND;
/// With this many ejected backends of a cluster, and none that answers, the other ones are ejected too.
const OF_CLUSTER: usize = 3;

/// What the programs saw of a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Observed {
    pub(super) import: ObjectKey,
    pub(super) backend: Backend,
    pub(super) record: HealthRecord,
}

/// The outcome of the agent's own connect to a failing backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Confirmation {
    Answers,
    Dead,
    Unknown,
}

/// All verdicts.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// Whether the agent connects to a failing backend before it ejects it.
    confirms: bool,
    /// Whether answers matter now.
    takes_answers: bool,
    imports: BTreeMap<ObjectKey, BTreeMap<SocketAddr, BackendHistory>>,
}

/// What is known of a backend.
#[derive(Debug)]
struct BackendHistory {
    cluster: Arc<str>,
    stage: Stage,
    /// How often it was ejected lately.
    times: u32,
    /// Failures until then do not count.
    settled: u64,
    /// When it answered a client the last time.
    answered: u64,
    /// The first failure that counts, while the backend fails or is ejected.
    failing: Option<u64>,
    /// When it failed, and answered the agent all the same.
    alone: Option<u64>,
    is_watched: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Well { since: u64 },
    Ejected { until: u64 },
    HalfOpen { since: u64 },
}

/// A change of a verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerdictChange {
    /// The import that it is about.
    pub import: ObjectKey,
    what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    Ejected { backend: SocketAddr, seconds: u64 },
    Cluster { cluster: Arc<str>, port: u16, backends: usize },
    HalfOpen { backend: SocketAddr },
    Answers { backend: SocketAddr },
    AnswersAgent { backend: SocketAddr },
}

impl VerdictChange {
    /// Whether clients lose connections or a backend.
    pub const fn is_loss(&self) -> bool {
        matches!(self.what, What::Ejected { .. } | What::Cluster { .. } | What::AnswersAgent { .. })
    }
}

impl fmt::Display for VerdictChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Ejected { backend, seconds } => write!(
                f,
                "backend {backend} does not answer clients of this node: ejected for {seconds} s"
            ),
            What::Cluster { cluster, port, backends } => write!(
                f,
                "no backend in cluster {cluster} with port {port} answers clients of this node: the other {backends} are ejected too"
            ),
            What::HalfOpen { backend } => write!(f, "backend {backend} is half open"),
            What::Answers { backend } => write!(f, "backend {backend} answers again"),
            What::AnswersAgent { backend } => write!(
                f,
                "backend {backend} answers this agent, and no client of this node: a network policy, or a way that pods alone lack"
            ),
        }
    }
}

impl Verdicts {
    pub(super) fn new(confirms: bool) -> Self {
        Self { confirms, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.imports.is_empty()
    }

    /// Forgets all other imports, and the verdicts about backends that are none of their `endpoints` any more.
    pub(super) fn retain(
        &mut self,
        imports: &BTreeSet<ObjectKey>,
        endpoints: impl Fn(&ObjectKey) -> HashSet<SocketAddr>,
    ) {
        self.imports.retain(|import, backends| {
            if imports.contains(import) && backends.values().any(BackendHistory::matters) {
                let endpoints = endpoints(import);
                backends.retain(|backend, one| !one.matters() || endpoints.contains(backend));
            }
            imports.contains(import) && !backends.is_empty()
        });
    }

    /// Whether answers are to be recorded: a backend fails or has failed.
    pub(super) const fn takes_answers(&self) -> bool {
        self.takes_answers
    }

    /// Takes the records of all watched backends, and the time since when the programs record answers. Returns the
    /// changes.
    pub(super) fn observe(
        &mut self,
        now: u64,
        answers_since: Option<u64>,
        observed: Vec<Observed>,
    ) -> Vec<VerdictChange> {
        let is_recent = |one: &mcs_common::ClientFailures| {
            one.netns_cookie != 0 && one.latest_ns + WINDOW >= now
        };
        self.takes_answers = observed.iter().any(|one| one.record.failures.iter().any(is_recent));
        let mut changes = Changes::default();
        for (import, backends) in &mut self.imports {
            for (backend, memory) in backends {
                memory.is_watched = false;
                match memory.stage {
                    Stage::Ejected { until } if now >= until => {
                        memory.stage = Stage::HalfOpen { since: now };
                        (memory.settled, memory.failing) = (now, None);
                        changes.add(import, What::HalfOpen { backend: *backend });
                    }
                    Stage::Well { since } if now >= since + FORGET => memory.times = 0,
                    _ => {}
                }
            }
        }
        // Frontends of an import can share a backend.
        let mut records: BTreeMap<(ObjectKey, SocketAddr), (Arc<str>, Vec<HealthRecord>)> =
            BTreeMap::new();
        for Observed { import, backend: Backend { address, cluster }, record } in observed {
            let (_, all) =
                records.entry((import, address)).or_insert_with(|| (cluster, Vec::new()));
            all.push(record);
        }
        for ((import, address), (cluster, records)) in records {
            let backends = self.imports.entry(import.clone()).or_default();
            let memory = backends.entry(address).or_insert_with(|| BackendHistory::new(cluster));
            if memory.take_records(now, answers_since, &records, self.confirms) {
                changes.add(&import, What::Answers { backend: address });
            }
            if !self.confirms && memory.is_suspect() {
                changes.add(&import, memory.eject(now, address));
            }
        }
        self.eject_clusters(&mut changes);
        for backends in self.imports.values_mut() {
            backends.retain(|_, memory| memory.is_remembered(now));
        }
        self.imports.retain(|_, backends| !backends.is_empty());
        let mut memories = self.imports.values().flat_map(BTreeMap::values);
        self.takes_answers |= memories.any(|one| !matches!(one.stage, Stage::Well { .. }));
        changes.0
    }

    /// The failing backends. The agent connects to them before it ejects them.
    pub(super) fn suspects(&self) -> Vec<(ObjectKey, SocketAddr)> {
        let of = |(import, backends): (&ObjectKey, &BTreeMap<SocketAddr, BackendHistory>)| {
            let suspects = backends.iter().filter(|(_, memory)| memory.is_suspect());
            suspects.map(|(address, _)| (import.clone(), *address)).collect::<Vec<_>>()
        };
        self.imports.iter().flat_map(of).collect()
    }

    /// Takes the outcome of the agent's connect to one of them. Returns the changes.
    pub(super) fn confirm(
        &mut self,
        now: u64,
        (import, address): &(ObjectKey, SocketAddr),
        confirmation: Confirmation,
    ) -> Vec<VerdictChange> {
        let mut changes = Changes::default();
        let memory = self.imports.get_mut(import).and_then(|all| all.get_mut(address));
        // It may have answered a client meanwhile.
        let Some(memory) = memory.filter(|memory| memory.is_suspect()) else { return changes.0 };
        if confirmation == Confirmation::Dead {
            changes.add(import, memory.eject(now, *address));
            self.eject_clusters(&mut changes);
            return changes.0;
        }
        // A client cannot make the agent connect all the time.
        (memory.settled, memory.failing) = (now + WINDOW, None);
        if confirmation == Confirmation::Answers {
            if memory.return_if_half_open(now) {
                changes.add(import, What::Answers { backend: *address });
            } else if memory.alone.replace(now).is_none() {
                changes.add(import, What::AnswersAgent { backend: *address });
            }
        }
        changes.0
    }

    /// Ejects the other backends of an import's port in a cluster and IP family, if several are ejected and none has answered
    /// since the first failure.
    fn eject_clusters(&mut self, changes: &mut Changes) {
        for (import, backends) in &mut self.imports {
            let mut groups: BTreeMap<_, Vec<&mut BackendHistory>> = BTreeMap::new();
            for (address, memory) in backends {
                let group = (Arc::clone(&memory.cluster), address.port(), address.is_ipv4());
                groups.entry(group).or_default().push(memory);
            }
            for ((cluster, port, _), backends) in groups {
                let (ejected, mut others): (Vec<_>, Vec<_>) =
                    backends.into_iter().partition(|one| one.ejected_until().is_some());
                let first = ejected.iter().filter_map(|one| one.failing).min();
                let until = ejected.iter().filter_map(|one| one.ejected_until()).max();
                let (Some(first), Some(until)) = (first, until) else { continue };
                let answers = |one: &&mut BackendHistory| one.answered >= first;
                if cluster.is_empty()
                    || others.is_empty()
                    || ejected.len() < OF_CLUSTER
                    || ejected.iter().chain(&others).any(answers)
                {
                    continue;
                }
                for memory in &mut others {
                    memory.times = (memory.times + 1).min(MOST_TIMES);
                    memory.failing = Some(first);
                    memory.stage = Stage::Ejected { until };
                }
                changes.add(import, What::Cluster { cluster, port, backends: others.len() });
            }
        }
    }

    /// The backends that were found dead.
    pub(super) fn ejections(&self) -> Vec<Ejection> {
        let of = |(import, backends): (&ObjectKey, &BTreeMap<SocketAddr, BackendHistory>)| {
            let ejection = |(backend, memory): (&SocketAddr, &BackendHistory)| {
                let state = match memory.stage {
                    Stage::Well { .. } if memory.alone.is_some() => EjectionState::AnswersAgent,
                    Stage::Well { .. } => return None,
                    Stage::Ejected { .. } => EjectionState::Ejected,
                    Stage::HalfOpen { .. } => EjectionState::HalfOpen,
                };
                Some(Ejection {
                    import: import.clone(),
                    backend: *backend,
                    cluster: Arc::clone(&memory.cluster),
                    state,
                    times: memory.times,
                    used: false,
                })
            };
            backends.iter().filter_map(ejection).collect::<Vec<_>>()
        };
        self.imports.iter().flat_map(of).collect()
    }
}

#[derive(Debug, Default)]
struct Changes(Vec<VerdictChange>);

impl Changes {
    fn add(&mut self, import: &ObjectKey, what: What) {
        self.0.push(VerdictChange { import: import.clone(), what });
    }
}

impl BackendHistory {
    const fn new(cluster: Arc<str>) -> Self {
        Self {
            cluster,
            stage: Stage::Well { since: 0 },
            times: 0,
            settled: 0,
            answered: 0,
            failing: None,
            alone: None,
            is_watched: true,
        }
    }

    /// Takes the records of a backend. Returns whether it answers again.
    fn take_records(
        &mut self,
        now: u64,
        answers_since: Option<u64>,
        records: &[HealthRecord],
        confirms: bool,
    ) -> bool {
        self.is_watched = true;
        let answered = records.iter().map(|record| record.answered_ns).max().unwrap_or_default();
        self.answered = self.answered.max(answered);
        let answers_clients = self.alone.take_if(|at| *at < self.answered).is_some();
        self.alone.take_if(|at| now >= *at + ALONE);
        let needed = match self.stage {
            Stage::Ejected { .. } => return false,
            // Without the agent's own connect one client would decide.
            Stage::HalfOpen { .. } if confirms => (1, 1),
            _ => (FAILURES, CLIENTS),
        };
        let settled = self.settled.max(self.answered);
        // Earlier answers were not recorded. The agent's own connect replaces them.
        let known = |since| if confirms { settled } else { settled.max(since) };
        let failing = |since| failing(now, records, known(since), needed, confirms);
        self.failing = answers_since.and_then(failing);
        matches!(self.stage, Stage::HalfOpen { since } if self.answered > since)
            && self.return_if_half_open(now)
            || answers_clients
    }

    const fn is_suspect(&self) -> bool {
        self.failing.is_some() && self.ejected_until().is_none()
    }

    const fn ejected_until(&self) -> Option<u64> {
        match self.stage {
            Stage::Ejected { until } => Some(until),
            _ => None,
        }
    }

    fn eject(&mut self, now: u64, backend: SocketAddr) -> What {
        self.alone = None;
        self.times = (self.times + 1).min(MOST_TIMES);
        let time = EJECTED * u64::from(self.times);
        self.stage = Stage::Ejected { until: now + time };
        What::Ejected { backend, seconds: time / SECOND }
    }

    fn return_if_half_open(&mut self, now: u64) -> bool {
        let is_half_open = matches!(self.stage, Stage::HalfOpen { .. });
        if is_half_open {
            self.stage = Stage::Well { since: now };
        }
        is_half_open
    }

    /// Whether somebody sees a verdict, or a new endpoint of this address would have one.
    const fn matters(&self) -> bool {
        self.times > 0 || self.alone.is_some() || self.failing.is_some()
    }

    const fn is_remembered(&self, now: u64) -> bool {
        match self.stage {
            Stage::Ejected { .. } => true,
            Stage::HalfOpen { since } => now < since + FORGET,
            Stage::Well { .. } => self.is_watched || self.times > 0,
        }
    }
}

/// The first of the failures that count, if there are enough: how many, and of how many clients.
fn failing(
    now: u64,
    records: &[HealthRecord],
    settled: u64,
    (failures, clients): (usize, usize),
    confirms: bool,
) -> Option<u64> {
    let counts = |at: &u64| *at > settled && *at + WINDOW >= now;
    let all = records.iter().flat_map(|record| &record.failures);
    let of = |one: &mcs_common::ClientFailures| {
        [one.latest_ns, one.before_ns].map(|at| (one.netns_cookie, at))
    };
    let counted: Vec<_> = all.flat_map(of).filter(|(_, at)| counts(at)).collect();
    let different: BTreeSet<_> = counted.iter().map(|(client, _)| *client).collect();
    let (devices, namespaces): (Vec<_>, Vec<_>) =
        different.into_iter().partition(|client| is_device(*client));
    // A namespace and a device can be one pod, which would decide alone where the agent does not connect.
    let different = if confirms {
        devices.len() + namespaces.len()
    } else {
        devices.len().max(namespaces.len())
    };
    let is_enough = counted.len() >= failures && different >= clients;
    counted.iter().map(|(_, at)| *at).min().filter(|_| is_enough)
}

#[cfg(test)]
mod tests;
