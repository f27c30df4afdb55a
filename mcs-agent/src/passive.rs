//! Passive health: whether backends answer the clients of this node, by what becomes of the connects of its sockets.
//!
//! The programs record connects to the backends in the map `health`. Verdicts follow from the records, and before a
//! backend is ejected the agent connects to it: what only some clients do not reach, since a policy is in their way, stays.

mod verdict;
mod watch;

use std::{io, net::SocketAddr, path::Path, pin::Pin, time::Duration};

use futures_util::future::join_all;
use mcs_kube::reach::{Attempt, Outcome, ProbePeers, connect};
use tokio::time::{Interval, MissedTickBehavior, interval};

pub use self::{
    verdict::VerdictChange,
    watch::{Targets, targets},
};
use self::{
    verdict::{Confirmation, Verdicts},
    watch::Watch,
};
use crate::{
    flows::monotonic_ns,
    model::{Ejection, ObjectKey},
};

/// How often the records are read.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a backend has to answer the agent. The kernel asks a second time after one second.
const CONFIRM: Duration = Duration::from_millis(1500);
/// To how many backends the agent connects at once.
const AT_ONCE: usize = 64;

type Suspect = (ObjectKey, SocketAddr);
type Round = Vec<(ObjectKey, Attempt)>;

/// Watches backends, and knows which ones do not answer.
pub struct Passive {
    verdicts: Verdicts,
    watch: Option<Watch>,
    period: Interval,
    round: Option<Pin<Box<dyn Future<Output = Round> + Send>>>,
}

/// What [`Passive::next`] waited for.
pub enum PassiveEvent {
    /// It is time for [`Passive::look`].
    Due,
    /// [`Passive::confirmed`] takes it.
    Confirmed(Round),
}

impl Passive {
    /// Watches nothing yet. With `ProbePeers::Off` the agent connects to no backend, and clients alone decide.
    pub fn new(probe: ProbePeers) -> Self {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let verdicts = Verdicts::new(probe == ProbePeers::On);
        Self { verdicts, watch: None, period, round: None }
    }

    /// Waits until something is to be done; for ever while nothing is watched. If the future is dropped before, the next
    /// call goes on waiting.
    pub async fn next(&mut self) -> PassiveEvent {
        if let Some(round) = &mut self.round {
            tokio::select! {
                ended = round => {
                    self.round = None;
                    return PassiveEvent::Confirmed(ended);
                }
                _ = self.period.tick() => return PassiveEvent::Due,
            }
        }
        if self.is_idle() {
            std::future::pending::<()>().await;
        }
        self.period.tick().await;
        PassiveEvent::Due
    }

    /// Whether nothing is watched, and nothing ejected.
    pub fn is_idle(&self) -> bool {
        self.watch.is_none() && self.verdicts.is_empty()
    }

    /// Watches these backends from now on. `imports`: all that have passive health.
    pub fn follow(
        &mut self,
        state: &Path,
        targets: Targets,
        imports: &[ObjectKey],
    ) -> io::Result<()> {
        self.verdicts.retain(&imports.iter().collect());
        let watch = match &mut self.watch {
            None if targets.is_empty() => return Ok(()),
            None => self.watch.insert(Watch::open(state)?),
            Some(watch) => watch,
        };
        watch.follow(targets)?;
        if watch.is_empty() {
            self.watch = None;
        }
        Ok(())
    }

    /// Whether the programs are to record connects.
    pub const fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// Reads the records. Returns what has changed.
    pub fn look(&mut self) -> io::Result<Vec<VerdictChange>> {
        let observed = self.watch.as_ref().map_or_else(|| Ok(Vec::new()), Watch::read)?;
        let changes = self.verdicts.look(monotonic_ns(), observed);
        if self.round.is_none() {
            let mut suspects = self.verdicts.suspects();
            // So that no import keeps others waiting.
            fastrand::shuffle(&mut suspects);
            suspects.truncate(AT_ONCE);
            if !suspects.is_empty() {
                self.round = Some(Box::pin(connect_all(suspects)));
            }
        }
        Ok(changes)
    }

    /// Takes what became of the agent's own connects. Returns what has changed.
    pub fn confirmed(&mut self, round: Round) -> Vec<VerdictChange> {
        let now = monotonic_ns();
        let each = round.into_iter().map(|(import, attempt)| {
            let confirmation = match attempt.outcome {
                Outcome::Answered => Confirmation::Answers,
                // The agent knows nothing.
                Outcome::Failed | Outcome::Unresolved => Confirmation::Unknown,
                Outcome::Refused | Outcome::Timeout | Outcome::Unreachable => Confirmation::Dead,
            };
            (import, attempt.address, confirmation)
        });
        self.verdicts.confirm(now, each)
    }

    /// The backends that were found dead.
    pub fn ejections(&self) -> Vec<Ejection> {
        self.verdicts.ejections()
    }
}

async fn connect_all(suspects: Vec<Suspect>) -> Round {
    let attempts = suspects
        .into_iter()
        .map(|(import, address)| async move { (import, connect(address, CONFIRM).await) });
    join_all(attempts).await
}
