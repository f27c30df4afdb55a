//! The rules and their latest result. Each round is full or partial.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use super::{
    claim::Claim,
    departure::{self, Others},
    eligibility::{self, Coverage},
    full_round::{self, Evaluation},
    preference::Preferences,
    problem::{self, ObjectProblem},
    report,
};
use crate::core::{
    model::{
        Departure, DesiredChanges, DesiredState, FrontendId, Kind, LeftAloneReason, NodeContext,
        ObjectKey, ObjectRef, Protocol, Rejection, RejectionReason, ServiceImport, Totals,
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
        let others = Others::new(snapshot, &self.latest.desired, &self.node);
        ips.into_iter().filter(|ip| others.may_have(*ip)).collect()
    }

    /// The imports whose backends are ejected if they do not answer.
    pub fn ejecting(&self) -> &[ObjectKey] {
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
        let mut imports = dirty.imports.iter().filter_map(|key| snapshot.import(key));
        dirty.everything
            || (self.latest.is_limited && !(dirty.slices.is_empty() && dirty.imports.is_empty()))
            || imports.any(|import| self.changes_eligibility(import, snapshot))
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
        dirty.imports.extend(self.preferences.due_now().cloned());
        dirty.imports.extend(self.node.ejections.differing(&node.ejections));
        self.node.ejections.clone_from(&node.ejections);
        let may_be_partial = self.node == *node && !self.needs_full_round(snapshot, &dirty);
        if may_be_partial
            && let Some(round) =
                evaluate_dirty(&mut self.latest, snapshot, &dirty, node, &mut self.preferences)
        {
            return round;
        }
        let in_force = in_force.unwrap_or(&self.latest.desired);
        let latest = full_round::evaluate(snapshot, node, in_force, &mut self.preferences);
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

/// Evaluates the imports that are dirty, and replaces their reports, frontends and rejections in `latest`.
///
/// `None`: a full round has to decide, since the backends of all imports together do not fit, or since tiers come with
/// a problem.
fn evaluate_dirty(
    latest: &mut Evaluation,
    snapshot: &Snapshot,
    dirty: &DirtyObjects,
    node: &NodeContext,
    preferences: &mut Preferences,
) -> Option<Round> {
    let mut imports = Vec::new();
    let mut retiered = Vec::new();
    let mut totals = latest.totals.clone();
    for key in &dirty.imports {
        let Some(import) = snapshot.import(key) else { continue };
        // Slices do not give an import a claim: an import without a claim still has none.
        let Some(mut claim) = latest.claims.get(key) else { continue };
        let with_tiers;
        if dirty.tiers.contains(key) {
            with_tiers = claim.with_tiers(import, node, preferences)?;
            claim = &with_tiers;
            retiered.push((key.clone(), claim.clone()));
        }
        let mut assigned =
            claim.select_backends(import, snapshot, &latest.vips, node, preferences, &mut ());
        for (id, frontend) in &mut assigned.frontends {
            let former = latest.desired.frontends.get(id)?;
            frontend.hold_of(Some(former));
            totals.remove(former);
            totals.add(frontend);
        }
        imports.push(assigned);
    }
    if !totals.fit(node.capacity) {
        return None;
    }
    latest.totals = totals;
    latest.claims.extend(retiered);
    let desired = &mut latest.desired;
    let slice = |key: &ObjectKey| ObjectRef { kind: Kind::EndpointSlice, key: key.clone() };
    let mut evaluated: BTreeSet<ObjectRef> = dirty.slices.iter().map(slice).collect();
    let malformed = evaluated.iter().filter_map(|object| {
        let message = snapshot.problem(object)?;
        Some(ObjectProblem::new(RejectionReason::Malformed, message).of(object))
    });
    let mut rejections: Vec<Rejection> = malformed.collect();
    let mut changed = BTreeSet::new();
    for assigned in imports {
        let import = &assigned.import.key;
        evaluated.extend(snapshot.slices(import).map(|one| slice(&one.key)));
        desired.set_report(report::of_assigned(&assigned));
        let object = assigned.import.read_from();
        rejections.extend(assigned.slice_rejections);
        rejections.extend(problem::rejections(assigned.problems, &object));
        evaluated.insert(object);
        for (id, frontend) in assigned.frontends {
            if desired.frontends.get(&id) != Some(&frontend) {
                desired.frontends.insert(id, frontend);
                changed.insert(id);
            }
        }
    }
    rejections.sort();
    let new_rejections = new_rejections(&desired.rejections, &rejections);
    replace_rejections(&mut desired.rejections, &evaluated, rejections);
    Some(Round {
        changes: DesiredChanges::Backends(changed),
        new_rejections,
        departures: BTreeMap::new(),
    })
}

/// Replaces the rejections of the evaluated objects. Both lists are sorted by object.
fn replace_rejections(
    all: &mut Vec<Rejection>,
    evaluated: &BTreeSet<ObjectRef>,
    rejections: Vec<Rejection>,
) {
    let mut rejections = rejections.into_iter().peekable();
    for object in evaluated {
        let begin = all.partition_point(|one| one.object < *object);
        let count = all[begin..].partition_point(|one| one.object == *object);
        let now = iter::from_fn(|| rejections.next_if(|now| now.object == *object));
        all.splice(begin..begin + count, now);
    }
}

/// What one round changed, compared with the round before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// The part of the desired state that can differ.
    pub changes: DesiredChanges,
    /// The rejections that the round before did not have.
    pub new_rejections: Vec<Rejection>,
    /// VIPs in force that are not served any more.
    pub departures: BTreeMap<IpAddr, Departure>,
}

/// The rejections in `after` that are not in `before`. Both are sorted.
fn new_rejections(before: &[Rejection], after: &[Rejection]) -> Vec<Rejection> {
    let is_known = |rejection: &Rejection| match rejection.reason {
        // The message counts what all objects want, so it changes with each of them.
        RejectionReason::Capacity => {
            let of_same = (&rejection.object, rejection.reason);
            before.binary_search_by(|one| (&one.object, one.reason).cmp(&of_same))
        }
        _ => before.binary_search(rejection),
    };
    after.iter().filter(|rejection| is_known(rejection).is_err()).cloned().collect()
}
