//! What the engine's methods return: what happened, for logs, metrics and reports.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::PendingChanges;
use crate::{
    model::{AdoptableGroup, AdoptableObjects, Capacity, Protocol, Rejection, SourceProblem},
    reconcile::Deferred,
    store::Change,
};

/// What is new in a batch.
#[derive(Debug, Default)]
pub struct BatchSummary {
    /// Objects that are different now, sorted.
    pub changes: Vec<Change>,
    /// How many of them are ServiceImports.
    pub imports: usize,
    /// What the source could read before and cannot read now.
    pub problems: Vec<SourceProblem>,
    /// Objects that `--adopt` would make the agent serve, unless their controller was known before.
    pub adoptable: Vec<AdoptableObjects>,
    /// API groups whose objects `--adopt` would make the agent serve, unless the group was known before.
    pub adoptable_groups: Vec<AdoptableGroup>,
}

/// What a round did.
#[derive(Debug)]
pub struct RoundSummary {
    /// Objects, or parts of them, that the agent does not use from now on.
    pub rejected: Vec<Rejection>,
    /// How many steps were planned. They were carried out up to the first write that failed.
    pub planned: usize,
    /// What the maps had no room for.
    pub deferred: Vec<Deferred>,
    /// The protocols whose sockets may be stale after the steps.
    pub may_leave_stale: BTreeSet<Protocol>,
    /// Larger maps are needed: [`Engine::has_grown`](super::Engine::has_grown) or
    /// [`Engine::has_not_grown`](super::Engine::has_not_grown) is due, and then another round.
    pub larger: Option<Capacity>,
    /// Whether the source became synced with this round.
    pub became_synced: bool,
    /// Why the maps are not as desired, other than for lack of room.
    pub failures: Vec<anyhow::Error>,
    /// How the round ended.
    pub outcome: Outcome,
    /// When it began.
    pub started: Instant,
    /// From the first rule to the last write.
    pub took: Duration,
}

/// How a round ended.
#[derive(Debug)]
pub enum Outcome {
    /// The maps are as desired. These changes were written since the last time.
    Written(PendingChanges),
    /// Some changes wait for [`RoundSummary::larger`] maps.
    Growing,
    /// A write failed, or there is no room: the next round is due after this time.
    Failed(Duration),
}

impl RoundSummary {
    pub(super) const fn begin(started: Instant) -> Self {
        Self {
            rejected: Vec::new(),
            planned: 0,
            deferred: Vec::new(),
            may_leave_stale: BTreeSet::new(),
            larger: None,
            became_synced: false,
            failures: Vec::new(),
            outcome: Outcome::Growing,
            started,
            took: Duration::ZERO,
        }
    }

    /// Whether the maps are as desired.
    pub const fn is_written(&self) -> bool {
        matches!(self.outcome, Outcome::Written(_))
    }
}
