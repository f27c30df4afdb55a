//! A full round: the rules evaluate every object.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    assignment, capacity,
    claim::{self, Claim, Claimant},
    coverage::Coverage,
    problem::ObjectProblem,
    report,
    spill::Spills,
    totals::Totals,
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
    pub(super) claims: BTreeMap<ObjectKey, Claim>,
    /// The imports among them that have passive health.
    pub(super) ejecting: Vec<ObjectKey>,
    /// The result of [`assignment::assign`].
    pub(super) vips: BTreeMap<IpAddr, ObjectKey>,
    /// Whether some backends or source clusters did not fit.
    pub(super) is_limited: bool,
    pub(super) totals: Totals,
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
    assignment::sort(&mut claimants);
    let vips = assignment::assign(&mut claimants, node.capacity.frontends, in_force);
    let mut services = Vec::with_capacity(claimants.len());
    for (import, claim) in &claimants {
        services.push(claim.service(import, snapshot, &vips, node, spills, &mut ()));
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
    let ejecting = claimants.iter().filter(|(_, claim)| claim.preferences.ejects);
    let ejecting = ejecting.map(|(import, _)| import.key.clone()).collect();
    let claims = claimants.into_iter().map(|(import, claim)| (import.key.clone(), claim)).collect();
    let totals = Totals::of(&desired);
    Evaluation { desired, claims, ejecting, vips, is_limited, totals }
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
        let unclaimed = match claim::evaluate(import, &coverage, node, in_force) {
            Ok(claim) => {
                claimants.push((import, claim));
                continue;
            }
            Err(unclaimed) => unclaimed,
        };
        results.add_report(report::of_unclaimed(&import.key, &unclaimed));
        results.reject(import, unclaimed.problems);
    }
    claimants
}
