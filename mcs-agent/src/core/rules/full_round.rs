//! A full round: the rules evaluate every object.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    assignment, capacity,
    claim::{self, Claim, Claimant},
    eligibility::Coverage,
    preference::Preferences,
    problem::{self, ObjectProblem},
    report,
};
use crate::core::{
    model::{
        DesiredState, ImportReport, ImportState, Kind, NodeContext, ObjectKey, Rejection,
        RejectionReason, Totals,
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
        rejections.extend(problem::rejections(assigned.problems, &assigned.import.read_from()));
        rejections.extend(assigned.slice_rejections);
        frontends.extend(assigned.frontends);
    }
    reports.sort_unstable_by(|one, other| one.import.cmp(&other.import));
    rejections.sort();
    let desired = DesiredState {
        vips: vips.keys().copied().collect(),
        frontends: frontends.into_iter().collect(),
        imports: Arc::new(reports.into_iter().map(Arc::new).collect()),
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
                rejections.extend(problem::rejections(unclaimed.problems, &import.read_from()));
            }
        }
    }
    claimants
}
