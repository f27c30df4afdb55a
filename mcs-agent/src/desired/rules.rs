//! The rules and their latest result. Each round is full or partial.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use super::{
    claim::Claim,
    coverage::Coverage,
    departure::{self, Others},
    eligibility,
    full_round::{self, Evaluation},
    partial_round,
    round::{Round, new_rejections},
    spill::Spills,
    totals::Totals,
};
use crate::{
    model::{
        Departure, DesiredChanges, DesiredState, FrontendId, LeftAloneReason, NodeContext,
        ObjectKey, Protocol, ServiceImport,
    },
    store::{DirtyObjects, Snapshot},
};

/// The rules and their latest result.
///
/// A partial round does not touch the other imports: to compare the objects of 10,000 imports with those of the round
/// before takes a millisecond. As long as all backends fit, a slice affects only the frontends of its own import, and so do
/// an import's tiers of source clusters. Every other change can affect all imports, because imports claim the same VIPs and
/// ports.
#[derive(Debug, Default)]
pub struct Rules {
    node: NodeContext,
    latest: Evaluation,
    spills: Spills,
}

impl Rules {
    /// The desired state after the latest round.
    ///
    /// It depends only on the latest objects and the node, not on the order in which the objects
    /// came, and on time where imports ask for spill. If not everything fits, frontends in force keep
    /// their room, and new ones are rejected.
    pub const fn desired(&self) -> &DesiredState {
        &self.latest.desired
    }

    /// Sets what the programs do with VIPs that are not served any more. A full round clears it.
    pub fn set_departed(&mut self, departed: BTreeMap<IpAddr, Departure>) {
        self.latest.desired.departed = departed;
    }

    /// Sets the frontends whose clients do not stay any longer. A full round clears it.
    pub fn set_deserted(&mut self, deserted: Arc<BTreeSet<FrontendId>>) {
        self.latest.desired.deserted = deserted;
    }

    /// The addresses among these that somebody else can have now.
    pub fn open_to_others(&self, ips: BTreeSet<IpAddr>, snapshot: &Snapshot) -> BTreeSet<IpAddr> {
        if ips.is_empty() {
            return ips;
        }
        let others = Others::new(snapshot, &self.latest.desired, &self.node);
        ips.into_iter().filter(|ip| others.may_have(*ip)).collect()
    }

    /// The imports that have passive health.
    pub fn ejecting(&self) -> &[ObjectKey] {
        &self.latest.ejecting
    }

    /// The TCP frontends of the imports that have passive health.
    pub fn watchable(&self) -> impl Iterator<Item = (&ObjectKey, FrontendId)> {
        self.latest.ejecting.iter().flat_map(|import| {
            let claim = self.latest.claims.get(import);
            let frontends = claim.into_iter().flat_map(|claim| &claim.assigned.frontends);
            let ids = frontends.map(|frontend| frontend.id);
            ids.filter(|id| id.protocol == Protocol::Tcp).map(move |id| (import, id))
        })
    }

    /// The totals of all frontends after the latest round.
    pub const fn totals(&self) -> &Totals {
        &self.latest.totals
    }

    /// Whether these changes need a full round, which takes much longer than a partial round.
    pub fn needs_full_round(&self, snapshot: &Snapshot, dirty: &DirtyObjects) -> bool {
        let mut imports = dirty.imports.iter().filter_map(|key| snapshot.import(key));
        dirty.everything
            || (self.latest.is_limited && !(dirty.slices.is_empty() && dirty.imports.is_empty()))
            || imports.any(|import| self.changes_eligibility(import, snapshot))
    }

    /// Sets the time of the next rounds. Without a time nothing is remembered of tiers that spill.
    pub const fn at(&mut self, now: Instant) -> &mut Self {
        self.spills.at(now);
        self
    }

    /// When a round is due although no object changes.
    pub fn due(&self) -> Option<Instant> {
        self.spills.next()
    }

    /// Evaluates the objects that changed since the latest round, and what depends on them.
    /// `in_force`: what the maps hold, if that is not the latest desired state.
    pub fn evaluate(
        &mut self,
        snapshot: &Snapshot,
        mut dirty: DirtyObjects,
        node: &NodeContext,
        in_force: Option<&DesiredState>,
    ) -> Round {
        // Before all objects are read, tiers look as if they were below their thresholds.
        if in_force.is_some() {
            self.spills.forget();
        }
        dirty.imports.extend(self.spills.due().cloned());
        dirty.imports.extend(self.node.ejections.differing(&node.ejections));
        self.node.ejections.clone_from(&node.ejections);
        let may_be_partial = self.node == *node && !self.needs_full_round(snapshot, &dirty);
        if may_be_partial
            && let Some(round) =
                partial_round::evaluate(&mut self.latest, snapshot, &dirty, node, &mut self.spills)
        {
            return round;
        }
        let in_force = in_force.unwrap_or(&self.latest.desired);
        let latest = full_round::evaluate(snapshot, node, in_force, &mut self.spills);
        let new_rejections =
            new_rejections(&self.latest.desired.rejections, &latest.desired.rejections);
        let departures = departure::departures(&self.latest, &latest, snapshot, node, in_force);
        self.latest = latest;
        if self.node != *node {
            self.node.clone_from(node);
        }
        Round { changes: DesiredChanges::Everything, new_rejections, departures }
    }

    /// Whether an import's slices now change who serves it, or the reason why it is left alone.
    fn changes_eligibility(&self, import: &ServiceImport, snapshot: &Snapshot) -> bool {
        let coverage = Coverage::of(import, snapshot.slices(&import.key), &self.node);
        let now = eligibility::why_left_alone(import, &coverage);
        if let Some(before) = self.latest.claims.get(&import.key) {
            return now.is_some() || self.changes_claim(before, import, coverage.has_slices());
        }
        let before = self.latest.desired.report(&import.key);
        match before.and_then(|report| report.left_alone.zip(Some(&report.message))) {
            Some((LeftAloneReason::ServiceRange, _)) if now.is_none() => coverage.has_slices(),
            Some((_, message)) => now.is_none_or(|now| now.message != *message),
            None => now.is_some(),
        }
    }

    /// Whether an import claims other VIPs or gets other frontends, since it has its first slice or has lost
    /// its last one.
    fn changes_claim(&self, before: &Claim, import: &ServiceImport, has_slices: bool) -> bool {
        let yields = || eligibility::yields_to_services(import, has_slices);
        before.has_slices != has_slices
            && (before.assigned.is_contested
                || !before.left_vips.is_empty()
                || (yields() && before.vips.iter().any(|vip| self.node.may_be_service(*vip))))
    }
}
