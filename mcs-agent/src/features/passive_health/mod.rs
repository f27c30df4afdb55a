//! Passive health: whether backends answer the clients of this node, by the outcome of their connects.
//!
//! Programs record connects of sockets to the backends in the map `health`. The sweep of the flow table finds the outcome of
//! connects in the packet path. Verdicts follow from these records. Before it ejects a backend, the agent connects to it: a
//! backend that only some clients do not reach, because of a network policy, is not ejected.

mod args;
pub mod control;
mod verdict;
mod watch;

use std::{
    collections::{BTreeSet, HashSet},
    io, mem,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use mcs_kube::reach::{Attempt, Outcome, ProbePeers, connect};
use tokio::time::{Interval, MissedTickBehavior, interval};

pub use self::{
    verdict::VerdictChange,
    watch::{Targets, Watching, targets},
};
use self::{
    verdict::{Confirmation, Verdicts},
    watch::HealthMap,
};
use crate::core::{
    feature::Definition,
    kernel::flows::{FlowRecords, monotonic_ns},
    model::{Ejection, FailedConnects, ObjectKey},
};

/// Passive health in the list of features.
pub const FEATURE: Definition = Definition {
    flags: args::flags,
    start: args::start,
    preference: args::preference,
    lines: args::lines,
    ..Definition::named("passive_health")
};

/// How often the records are read.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a backend has to answer the agent. The kernel sends a second SYN after one second.
const CONFIRM: Duration = Duration::from_millis(1500);
/// To how many backends the agent connects at once.
const AT_ONCE: usize = 64;

type Suspect = (ObjectKey, SocketAddr);
type Asked = (ObjectKey, Attempt);

/// Watches backends, and knows which ones do not answer.
pub struct Passive {
    verdicts: Verdicts,
    watch: Option<HealthMap>,
    /// What flows of the packet path say of backends.
    flows: FlowRecords,
    /// Failed connects for the next [`Passive::take_failed`].
    failed: Vec<FailedConnects>,
    /// Since when the programs record answers too.
    answers_since: Option<u64>,
    period: Interval,
    /// The agent's own connects, and to which backends.
    asks: FuturesUnordered<Pin<Box<dyn Future<Output = Asked> + Send>>>,
    asked: BTreeSet<Suspect>,
}

/// What [`Passive::next`] waited for.
pub enum PassiveEvent {
    /// It is time for [`Passive::read_records`].
    Due,
    /// [`Passive::confirmed`] takes it.
    Confirmed(Asked),
}

impl Passive {
    /// Watches nothing yet. With `ProbePeers::Off` the agent connects to no backend, and clients alone decide.
    pub fn new(probe: ProbePeers) -> Self {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let verdicts = Verdicts::new(probe == ProbePeers::On);
        let (asks, asked) = (FuturesUnordered::new(), BTreeSet::new());
        let flows = FlowRecords::new();
        let failed = Vec::new();
        Self { verdicts, watch: None, flows, failed, answers_since: None, period, asks, asked }
    }

    /// Waits until something is to be done; for ever while nothing is watched. If the future is dropped before, the next
    /// call goes on waiting.
    pub async fn next(&mut self) -> PassiveEvent {
        if self.is_idle() && self.asks.is_empty() {
            std::future::pending::<()>().await;
        }
        tokio::select! {
            Some(asked) = self.asks.next() => PassiveEvent::Confirmed(asked),
            _ = self.period.tick() => PassiveEvent::Due,
        }
    }

    /// Whether nothing is watched, and nothing ejected.
    pub fn is_idle(&self) -> bool {
        self.watch.is_none() && self.verdicts.is_empty()
    }

    /// Watches these backends from now on. `imports`: all that have passive health. `endpoints`: those of an import, whether
    /// clients get them or not.
    pub fn follow(
        &mut self,
        state: &Path,
        targets: Targets,
        imports: &BTreeSet<ObjectKey>,
        endpoints: impl Fn(&ObjectKey) -> HashSet<SocketAddr>,
    ) -> io::Result<()> {
        self.verdicts.retain(imports, endpoints);
        let watch = match &mut self.watch {
            None if targets.is_empty() => return Ok(()),
            None => self.watch.insert(HealthMap::open(state)?),
            Some(watch) => watch,
        };
        watch.follow(targets)?;
        if watch.is_empty() {
            self.watch = None;
        }
        Ok(())
    }

    /// What the programs are to record.
    pub const fn watching(&self) -> Watching {
        match self.watch {
            None => Watching::Nothing,
            Some(_) if self.verdicts.takes_answers() => Watching::FailuresAndAnswers,
            Some(_) => Watching::Failures,
        }
    }

    /// Takes what the programs record from now on, or still record.
    pub fn watched(&mut self, watching: Watching) {
        self.answers_since = match watching {
            Watching::FailuresAndAnswers => self.answers_since.or_else(|| Some(monotonic_ns())),
            Watching::Nothing | Watching::Failures => None,
        };
    }

    /// Takes what flows of the packet path say now.
    pub fn take_flows(&mut self, flows: FlowRecords) {
        self.failed.extend(self.watch.iter().flat_map(|watch| watch.failed_flows(&flows)));
        self.flows = flows;
    }

    /// Reads the records. Returns the changes.
    pub fn read_records(&mut self) -> io::Result<Vec<VerdictChange>> {
        let read = |watch: &mut HealthMap| watch.read(&self.flows);
        let (observed, failed) = self.watch.as_mut().map(read).transpose()?.unwrap_or_default();
        self.failed.extend(failed);
        let changes = self.verdicts.observe(monotonic_ns(), self.answers_since, observed);
        let mut suspects = self.verdicts.suspects();
        // So that no import always comes last.
        fastrand::shuffle(&mut suspects);
        for (import, address) in suspects {
            if self.asked.len() < AT_ONCE && self.asked.insert((import.clone(), address)) {
                self.asks.push(Box::pin(async move { (import, connect(address, CONFIRM).await) }));
            }
        }
        Ok(changes)
    }

    /// Takes the outcome of one of the agent's own connects. Returns the changes.
    pub fn confirmed(&mut self, (import, attempt): Asked) -> Vec<VerdictChange> {
        let confirmation = match attempt.outcome {
            Outcome::Answered => Confirmation::Answers,
            // That says nothing of the backend.
            Outcome::Failed
            | Outcome::Denied
            | Outcome::Unresolved
            | Outcome::DnsEmpty
            | Outcome::DnsFailed
            | Outcome::DnsSilent => Confirmation::Unknown,
            Outcome::Refused | Outcome::Timeout | Outcome::Unreachable => Confirmation::Dead,
        };
        let suspect = (import, attempt.address);
        self.asked.remove(&suspect);
        self.verdicts.confirm(monotonic_ns(), &suspect, confirmation)
    }

    /// The connects to watched backends that have failed since the last call.
    pub fn take_failed(&mut self) -> Vec<FailedConnects> {
        mem::take(&mut self.failed)
    }

    /// The backends that were found dead.
    pub fn ejections(&self) -> Vec<Ejection> {
        self.verdicts.ejections()
    }
}
