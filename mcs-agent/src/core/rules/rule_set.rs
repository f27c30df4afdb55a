//! The rules and their latest result. Each round is full or partial.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use super::{
    full_round::{self, Evaluation, Others, Round, new_rejections},
    partial_round,
    preference::Preferences,
};
use crate::core::{
    model::{
        Departure, DesiredChanges, DesiredState, FrontendId, NodeContext, ObjectKey, Protocol,
        Totals,
    },
    store::{DirtyObjects, Snapshot},
};

/// The rules and their latest result.
///
/// A partial round does not touch the other imports: to compare the objects of 10,000 imports with those of the round
/// before takes a millisecond. As long as everything fits, a slice affects only the frontends of its own import, and so
/// does an import that shares its VIPs with no other import and no endpoint. Every other change can affect all imports.
#[derive(Debug, Default)]
pub struct Rules {
    node: NodeContext,
    latest: Evaluation,
    pub(crate) preferences: Preferences,
}

impl Rules {
    /// The desired state after the latest round.
    ///
    /// It depends only on the latest objects and the node, not on the order in which the objects
    /// came, and on time where preferences do. If not everything fits, frontends in force keep
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
        let others = Others::new(&ips, snapshot, &self.latest.desired, &self.node);
        ips.iter().filter(|ip| others.may_have(**ip)).copied().collect()
    }

    /// The imports whose backends are ejected if they do not answer.
    pub const fn ejecting(&self) -> &BTreeSet<ObjectKey> {
        &self.latest.ejecting
    }

    /// Their TCP frontends.
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
        let Self { node, latest, preferences } = self;
        partial_round::changed(latest, snapshot, dirty, node, preferences).is_none()
    }

    /// Sets the time of the next rounds. Without a time preferences remember nothing.
    pub const fn at(&mut self, now: Instant) -> &mut Self {
        self.preferences.now = Some(now);
        self
    }

    /// When a round is due although no object changes.
    pub fn due(&self) -> Option<Instant> {
        self.preferences.next()
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
        if in_force.is_some() {
            self.preferences.each(|one| one.forget());
        }
        dirty.reselected.extend(self.preferences.due_now().cloned());
        dirty.reselected.extend(self.node.ejections.differing(&node.ejections));
        self.node.ejections.clone_from(&node.ejections);
        let Self { latest, preferences, .. } = self;
        let changed = (self.node == *node)
            .then(|| partial_round::changed(latest, snapshot, &dirty, node, preferences))
            .flatten()
            .filter(|changed| changed.is_empty() || in_force.is_none());
        if let Some(changed) = changed
            && let Some(round) =
                partial_round::evaluate(latest, changed, snapshot, &dirty, node, preferences)
        {
            return round;
        }
        let in_force = in_force.unwrap_or(&self.latest.desired);
        let latest = full_round::evaluate(snapshot, node, in_force, &mut self.preferences);
        let new_rejections =
            new_rejections(&self.latest.desired.rejections, &latest.desired.rejections);
        let departures = full_round::departures(&self.latest, &latest, snapshot, node, in_force);
        self.latest = latest;
        if self.node != *node {
            self.node.clone_from(node);
        }
        Round { changes: DesiredChanges::Everything, new_rejections, departures }
    }
}
