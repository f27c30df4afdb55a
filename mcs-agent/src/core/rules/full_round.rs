//! A full round, in which the rules evaluate every object; what any round has changed, and what becomes of a VIP that no import
//! asks for any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    assignment, capacity,
    claim::{self, Claim, Claimant},
    eligibility::Coverage,
    fields::{self, ObjectProblem},
    preference::Preferences,
    report, vip,
};
use crate::core::{
    model::{
        Departure, DesiredChanges, DesiredState, ImportReport, ImportState, Kind, NodeContext,
        ObjectKey, ObjectRef, Rejection, RejectionReason, Totals,
    },
    store::Snapshot,
};

/// The result of the rules for all objects, and what partial rounds reuse of it.
#[derive(Debug, Default)]
pub(crate) struct Evaluation {
    pub(crate) desired: DesiredState,
    /// By import. An import that is rejected or left alone has no claim.
    pub(crate) claims: BTreeMap<ObjectKey, Claim>,
    /// The imports with a claim whose backends are ejected if they do not answer.
    pub(super) ejecting: BTreeSet<ObjectKey>,
    /// The result of [`assignment::assign`].
    pub(crate) vips: BTreeMap<IpAddr, ObjectKey>,
    /// Whether some VIPs or frontends did not fit.
    pub(super) is_crowded: bool,
    /// Whether some backends or source clusters did not fit.
    pub(super) is_limited: bool,
    pub(super) totals: Totals,
}

/// Evaluates all objects.
pub(crate) fn evaluate(
    snapshot: &Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
    preferences: &mut Preferences,
) -> Evaluation {
    preferences.each(|one| one.begin(None));
    let mut results = ObjectResults::default();
    let mut claimants = claimants(snapshot, node, in_force, preferences, &mut results);
    assignment::sort(&mut claimants);
    let (vips, is_crowded) = assignment::assign(&mut claimants, node.capacity, in_force);
    let mut imports = Vec::with_capacity(claimants.len());
    for (import, claim) in &claimants {
        imports.push(claim.select_backends(import, snapshot, &vips, node, preferences, &mut ()));
    }
    preferences.each(|one| one.end());
    let is_limited = capacity::limit(&mut imports, node.capacity, in_force);

    let ObjectResults { mut reports, mut rejections } = results;
    let mut frontends = Vec::with_capacity(imports.len());
    for assigned in imports {
        reports.push(report::of_assigned(&assigned));
        rejections.extend(fields::rejections(assigned.problems, &assigned.import.read_from()));
        rejections.extend(assigned.slice_rejections);
        frontends.extend(assigned.frontends);
    }
    reports.sort_unstable_by(|one, other| one.import.cmp(&other.import));
    rejections.sort();
    let mut reports: Vec<_> = reports.into_iter().map(Arc::new).collect();
    // They are collected in place, where reports themselves took 14 times as much.
    reports.shrink_to_fit();
    let desired = DesiredState {
        vips: vips.keys().copied().collect(),
        frontends: frontends.into_iter().collect(),
        imports: Arc::new(reports),
        rejections,
        ..DesiredState::default()
    };
    let ejecting = claimants.iter().filter(|(_, claim)| claim.wishes.ejects);
    let ejecting = ejecting.map(|(import, _)| import.key.clone()).collect();
    let claims = claimants.into_iter().map(|(import, claim)| (import.key.clone(), claim)).collect();
    let totals = Totals::of(&desired);
    Evaluation { desired, claims, ejecting, vips, is_crowded, is_limited, totals }
}

/// The reports and rejections of a round, not sorted yet.
#[derive(Default)]
struct ObjectResults {
    reports: Vec<ImportReport>,
    rejections: Vec<Rejection>,
}

/// The imports with a valid claim. What is said of all others goes to `results`.
fn claimants<'a>(
    snapshot: &'a Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
    preferences: &Preferences,
    ObjectResults { reports, rejections }: &mut ObjectResults,
) -> Vec<Claimant<'a>> {
    for (object, message) in snapshot.malformed() {
        if object.kind == Kind::ServiceImport {
            reports.push(report::report(&object.key, ImportState::Rejected, message));
        }
        rejections.push(ObjectProblem::new(RejectionReason::Malformed, message).of(object));
    }
    let mut claimants = Vec::new();
    for import in snapshot.imports() {
        let coverage = Coverage::of(import, snapshot.slices(&import.key), node);
        match claim::evaluate(import, &coverage, node, in_force, preferences) {
            Ok(claim) => claimants.push((import, claim)),
            Err(unclaimed) => {
                reports.push(report::of_unclaimed(&import.key, &unclaimed));
                rejections.extend(fields::rejections(unclaimed.problems, &import.read_from()));
            }
        }
    }
    claimants
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
pub(super) fn new_rejections(before: &[Rejection], after: &[Rejection]) -> Vec<Rejection> {
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

/// The VIPs in force that the latest round does not serve.
///
/// An address is refused only if nobody else can have it. `former`: the round before, which knows the derived
/// Services of imports that were deleted.
pub(super) fn departures(
    former: &Evaluation,
    latest: &Evaluation,
    snapshot: &Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
) -> BTreeMap<IpAddr, Departure> {
    let gone: BTreeSet<IpAddr> = &in_force.vips - &latest.desired.vips;
    if gone.is_empty() {
        return BTreeMap::new();
    }
    let derived = former.claims.values().filter(|claim| claim.has_derived_service);
    let derived = derived.flat_map(|claim| &claim.vips).copied();
    let unreadable = gone.iter().filter(|ip| is_unreadable(**ip, snapshot, in_force)).copied();
    let taken = derived.chain(unreadable).collect();
    of_gone(&gone, &taken, snapshot, &latest.desired, node)
}

/// What becomes of VIPs that nobody has in `desired`. `taken`: somebody else is known to have these.
pub(super) fn of_gone(
    gone: &BTreeSet<IpAddr>,
    taken: &BTreeSet<IpAddr>,
    snapshot: &Snapshot,
    desired: &DesiredState,
    node: &NodeContext,
) -> BTreeMap<IpAddr, Departure> {
    if gone.is_empty() {
        return BTreeMap::new();
    }
    let others = Others::new(gone, snapshot, desired, node);
    let is_taken = |ip| taken.contains(&ip) || others.may_have(ip);
    let departure = |ip| if is_taken(ip) { Departure::HandedBack } else { Departure::Gone };
    gone.iter().map(|ip| (*ip, departure(*ip))).collect()
}

/// Which of some addresses somebody else than the agent can have.
pub(super) struct Others<'a> {
    /// Imports list them, also imports that are left alone or rejected; or backends have them: those are of pods.
    in_use: BTreeSet<IpAddr>,
    node: &'a NodeContext,
}

impl<'a> Others<'a> {
    pub(super) fn new(
        ips: &BTreeSet<IpAddr>,
        snapshot: &Snapshot,
        desired: &DesiredState,
        node: &'a NodeContext,
    ) -> Self {
        let listed = snapshot.imports().flat_map(|import| &import.ips);
        let listed = listed.filter_map(|ip| ip.parse().ok());
        let mut in_use: BTreeSet<IpAddr> = listed.filter(|ip| ips.contains(ip)).collect();
        if ips.iter().any(|ip| snapshot.can_be_endpoint(*ip)) {
            let backends = desired.frontends.values().flat_map(|frontend| &frontend.backends);
            let backends = backends.map(|backend| backend.address.ip());
            in_use.extend(backends.filter(|ip| ips.contains(ip)));
        }
        Self { in_use, node }
    }

    /// Whether anything but a served import can have the address.
    pub(super) fn may_have(&self, ip: IpAddr) -> bool {
        self.in_use.contains(&ip) || self.node.may_be_service(ip) || !vip::is_allowed(ip, self.node)
    }
}

/// Whether an import that served the address cannot be read any more.
fn is_unreadable(ip: IpAddr, snapshot: &Snapshot, in_force: &DesiredState) -> bool {
    in_force.frontends_of(ip).map(|frontend| &frontend.import).any(|import| {
        let object = ObjectRef { kind: Kind::ServiceImport, key: import.clone() };
        snapshot.problem(&object).is_some()
    })
}
