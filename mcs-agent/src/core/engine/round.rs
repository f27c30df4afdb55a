//! What the engine's methods return: what happened, for logs, metrics and reports, and how full the config maps are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::core::{
    model::{Capacity, Departure, ObjectKey, Protocol, Rejection, SourceProblem},
    rules::Rules,
    store::ObjectChange,
    tables::{Deferred, Realized},
};

/// What is new in a batch.
#[derive(Debug, Default)]
pub struct BatchSummary {
    /// Objects that are different now, sorted.
    pub changes: Vec<ObjectChange>,
    /// How many of them are ServiceImports.
    pub imports: usize,
    /// What the source could read before and cannot read now.
    pub problems: Vec<SourceProblem>,
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

/// How many changes of objects the maps do not follow yet, and what triggered them.
#[derive(Debug, Default)]
pub struct PendingChanges {
    imports: usize,
    slices: usize,
    /// The time of the event that made a controller change an EndpointSlice, by slice: the oldest of
    /// several.
    triggers: BTreeMap<ObjectKey, Trigger>,
}

/// What made a controller change an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// `endpoints.kubernetes.io/last-change-trigger-time`.
    pub time: SystemTime,
    /// The source cluster of the slice; empty if it names none.
    pub cluster: Arc<str>,
}

impl PendingChanges {
    /// Counts a ServiceImport that was added, updated or removed.
    pub fn add_import(&mut self) {
        self.imports += 1;
    }

    /// Counts an EndpointSlice that was added or updated.
    pub(super) fn add_slice(&mut self, slice: &ObjectKey, trigger: Option<Trigger>) {
        self.slices += 1;
        if let Some(trigger) = trigger {
            self.triggers.entry(slice.clone()).or_insert(trigger);
        }
    }

    /// Counts an EndpointSlice that was removed. Its last trigger did not cause the removal.
    pub(super) fn add_deletion(&mut self, slice: &ObjectKey) {
        self.slices += 1;
        self.triggers.remove(slice);
    }

    /// Changes of ServiceImports.
    pub const fn imports(&self) -> usize {
        self.imports
    }

    /// Changes of EndpointSlices.
    pub const fn slices(&self) -> usize {
        self.slices
    }

    /// The oldest trigger of each changed EndpointSlice that names one.
    pub fn triggers(&self) -> impl Iterator<Item = &Trigger> {
        self.triggers.values()
    }
}

/// How many entries of each sort the desired state has. Part of `mcs-agent status -o json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// VIPs.
    pub vips: usize,
    /// Frontends.
    pub frontends: usize,
    /// Backends of all frontends together, each as often as it has slots.
    pub endpoints: usize,
    /// Source clusters.
    pub clusters: usize,
    /// ServiceImports that can have frontends.
    #[serde(default)]
    pub imports: usize,
    /// Backends that are kept for their UDP clients. They take room that nothing else needs.
    #[serde(default)]
    pub kept: u32,
    /// Addresses in the maps that were VIPs and were handed back.
    #[serde(default)]
    pub handed_back: usize,
    /// Addresses in the maps whose imports were deleted: they are refused.
    #[serde(default)]
    pub gone: usize,
}

impl Usage {
    /// The usage of the desired state, and of the kept backends in the maps.
    pub(super) fn of(rules: &Rules, realized: &Realized) -> Self {
        let (desired, totals) = (rules.desired(), rules.totals());
        let departed = |departure| {
            desired.departed.values().filter(|departed| **departed == departure).count()
        };
        Self {
            vips: desired.vips.len(),
            frontends: desired.frontends.len(),
            endpoints: totals.slots,
            clusters: totals.clusters.len(),
            imports: desired.imports.len().min(desired.frontends.len()),
            kept: realized.kept_backends(),
            handed_back: departed(Departure::HandedBack),
            gone: departed(Departure::Gone),
        }
    }

    /// The addresses in the maps that were VIPs, by what has become of them.
    pub const fn departed(&self) -> [(Departure, usize); 2] {
        [(Departure::HandedBack, self.handed_back), (Departure::Gone, self.gone)]
    }

    /// The least capacity that has room for what is desired, and for the VIPs that have departed.
    pub(super) fn capacity(self) -> Capacity {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Capacity {
            vips: count(self.vips + self.handed_back + self.gone),
            frontends: count(self.frontends),
            endpoints: count(self.endpoints),
            clusters: count(self.clusters),
            imports: count(self.imports),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(second: u64) -> Trigger {
        Trigger { time: UNIX_EPOCH + Duration::from_secs(second), cluster: "east".into() }
    }

    #[test]
    fn the_oldest_trigger_of_a_slice_counts_until_it_is_removed() {
        let (web, dns) = (ObjectKey::new("shop", "web-a"), ObjectKey::new("shop", "dns-a"));
        let mut changes = PendingChanges::default();
        changes.add_slice(&web, Some(at(1)));
        changes.add_slice(&web, Some(at(2)));
        changes.add_slice(&dns, None);
        assert_eq!(changes.triggers().collect::<Vec<_>>(), [&at(1)]);
        changes.add_deletion(&web);
        assert_eq!(changes.triggers().count(), 0);
        assert_eq!(changes.slices(), 4);
    }
}
