//! A full round: the rules evaluate every object.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    assignment, capacity,
    claim::{self, ClaimResult},
    coverage::Coverage,
    precedence::{self, Claimant},
    problem::ObjectProblem,
    report,
    service::AssignedClaim,
    spill::Spills,
};
use crate::{
    model::{
        DesiredState, ImportReport, ImportState, Kind, NodeContext, ObjectKey, Rejection,
        RejectionReason, ServiceImport,
    },
    store::Snapshot,
};

/// The result of the rules for all objects, and what partial rounds reuse of it.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    pub(super) desired: DesiredState,
    /// By import. An import that is rejected or left alone has none.
    pub(super) claims: BTreeMap<ObjectKey, AssignedClaim>,
    /// The imports among them that have passive health.
    pub(super) ejecting: Vec<ObjectKey>,
    /// As in [`assignment::Assignments`].
    pub(super) vips: BTreeMap<IpAddr, ObjectKey>,
    /// Whether some backends or source clusters did not fit.
    pub(super) is_limited: bool,
}

/// Evaluates all objects.
pub(super) fn evaluate(
    snapshot: &Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
    spills: &mut Spills,
) -> Evaluation {
    spills.begin_full();
    let mut results = ObjectResults::default();
    results.add_malformed(snapshot);
    let mut claimants = claimants(snapshot, node, in_force, &mut results);
    precedence::sort(&mut claimants);
    let assignments = assignment::assign(&mut claimants, node.capacity.frontends, in_force);
    let vips = assignments.vips.into_iter().map(|(ip, import)| (ip, import.clone())).collect();

    // A map that is collected has full nodes: it takes half the memory of a map into which entries are inserted.
    let mut claims = Vec::with_capacity(claimants.len());
    let mut services = Vec::with_capacity(claimants.len());
    let mut ejecting = Vec::new();
    for (Claimant { import, claim, problems }, assignment) in
        claimants.into_iter().zip(assignments.imports)
    {
        let has_derived_service = import.derived_service().is_some();
        let claim = AssignedClaim { claim, assignment, has_derived_service, problems };
        services.push(claim.service(import, snapshot, &vips, node, spills, &mut ()));
        if claim.claim.preferences.eject() {
            ejecting.push(import.key.clone());
        }
        claims.push((import.key.clone(), claim));
    }
    spills.end_full();
    let is_limited = capacity::limit(&mut services, node.capacity, in_force);

    let mut frontends = Vec::with_capacity(services.len());
    for service in services {
        results.add_report(report::of_service(&service));
        results.reject(service.import, service.problems);
        results.rejections.extend(service.slice_rejections);
        frontends.extend(service.frontends);
    }
    let ObjectResults { reports, mut rejections } = results;
    rejections.sort();
    let imports = Arc::new(reports.into_values().collect());
    let desired = DesiredState {
        vips: vips.keys().copied().collect(),
        frontends: frontends.into_iter().collect(),
        imports,
        rejections,
        ..DesiredState::default()
    };
    Evaluation { desired, claims: claims.into_iter().collect(), ejecting, vips, is_limited }
}

/// The reports and rejections of a round; `rejections` is not sorted.
#[derive(Default)]
struct ObjectResults {
    reports: BTreeMap<ObjectKey, Arc<ImportReport>>,
    rejections: Vec<Rejection>,
}

impl ObjectResults {
    fn add_report(&mut self, report: ImportReport) {
        self.reports.insert(report.import.clone(), Arc::new(report));
    }

    fn reject(&mut self, import: &ServiceImport, problems: Vec<ObjectProblem>) {
        let object = import.read_from();
        self.rejections.extend(problems.into_iter().map(|problem| problem.of(&object)));
    }

    fn add_malformed(&mut self, snapshot: &Snapshot) {
        for (object, message) in snapshot.malformed() {
            if object.kind == Kind::ServiceImport {
                self.add_report(report::report(&object.key, ImportState::Rejected, message));
            }
            self.rejections
                .push(ObjectProblem::new(RejectionReason::Malformed, message).of(object));
        }
    }
}

/// The imports with a valid claim. The reports of all others go to `results`.
fn claimants<'a>(
    snapshot: &'a Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
    results: &mut ObjectResults,
) -> Vec<Claimant<'a>> {
    let mut claimants = Vec::new();
    for import in snapshot.imports() {
        let coverage = Coverage::of(import, snapshot.slices(&import.key), node);
        let (result, problems) = claim::evaluate(import, &coverage, node, in_force);
        results.add_report(match result {
            ClaimResult::Claimed(claim) => {
                claimants.push(Claimant { import, claim, problems });
                continue;
            }
            ClaimResult::LeftAlone(why) => report::of_left_alone(&import.key, &why),
            ClaimResult::Rejected => {
                let first = problems.first().map(|problem| problem.message.clone());
                report::report(&import.key, ImportState::Rejected, &first.unwrap_or_default())
            }
        });
        results.reject(import, problems);
    }
    claimants
}
