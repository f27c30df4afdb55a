use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    allotment, capacity,
    claim::{self, Verdict},
    precedence::{self, Claimant},
    refusal::Refusal,
    report,
    standing::Standing,
};
use crate::{
    model::{
        DesiredState, ImportReport, ImportState, Kind, NodeContext, ObjectKey, ObjectRef,
        Rejection, RejectionReason,
    },
    store::Snapshot,
};

/// What the rules come to for all objects, and what they went by.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) desired: DesiredState,
    /// How every import stands that claims something.
    pub(super) standings: BTreeMap<ObjectKey, Standing>,
    /// As in [`allotment::Allotment`].
    pub(super) vips: BTreeMap<IpAddr, ObjectKey>,
    /// Whether there is less room than backends and source clusters want.
    pub(super) bounded: bool,
}

/// Judges all objects.
pub(super) fn judge(snapshot: &Snapshot, node: &NodeContext, in_force: &DesiredState) -> Whole {
    let mut outcome = Outcome::default();
    outcome.malformed(snapshot);
    let mut claimants = claimants(snapshot, node, &mut outcome);
    precedence::sort(&mut claimants);
    let allotment = allotment::allot(&mut claimants, node.capacity.frontends, in_force);
    let vips = allotment.vips.into_iter().map(|(ip, import)| (ip, import.clone())).collect();

    let mut standings = BTreeMap::new();
    let mut services = Vec::with_capacity(claimants.len());
    for (Claimant { import, claim, refusals }, holding) in
        claimants.into_iter().zip(allotment.holdings)
    {
        let standing = Standing { claim, holding, refusals };
        let (service, rejections) = standing.serve(import, snapshot, &vips, node);
        outcome.rejections.extend(rejections);
        services.push(service);
        standings.insert(import.key.clone(), standing);
    }
    let bounded = capacity::bound(&mut services, node.capacity, in_force);

    let mut frontends = BTreeMap::new();
    for service in services {
        outcome.report(report::of_service(&service));
        outcome.refuse(&service.import.key, service.refusals);
        frontends.extend(service.frontends);
    }
    let Outcome { reports, mut rejections } = outcome;
    rejections.sort();
    let imports = reports.into_values().collect();
    let desired =
        DesiredState { vips: vips.keys().copied().collect(), frontends, imports, rejections };
    Whole { desired, standings, vips, bounded }
}

/// What is told about objects, in no order.
#[derive(Default)]
struct Outcome {
    reports: BTreeMap<ObjectKey, Arc<ImportReport>>,
    rejections: Vec<Rejection>,
}

impl Outcome {
    fn report(&mut self, report: ImportReport) {
        self.reports.insert(report.import.clone(), Arc::new(report));
    }

    fn refuse(&mut self, import: &ObjectKey, refusals: Vec<Refusal>) {
        let object = ObjectRef { kind: Kind::ServiceImport, key: import.clone() };
        self.rejections.extend(refusals.into_iter().map(|refusal| refusal.of(&object)));
    }

    fn malformed(&mut self, snapshot: &Snapshot) {
        for (object, message) in snapshot.malformed() {
            if object.kind == Kind::ServiceImport {
                self.report(report::report(&object.key, ImportState::Rejected, message));
            }
            self.rejections.push(Refusal::new(RejectionReason::Malformed, message).of(object));
        }
    }
}

/// The imports that claim something; the others are told about.
fn claimants<'a>(
    snapshot: &'a Snapshot,
    node: &NodeContext,
    outcome: &mut Outcome,
) -> Vec<Claimant<'a>> {
    let mut claimants = Vec::new();
    for import in snapshot.imports() {
        let has_slices = snapshot.slices(&import.key).next().is_some();
        let (verdict, refusals) = claim::judge(import, has_slices, node);
        let (state, message) = match verdict {
            Verdict::Claimed(claim) => {
                claimants.push(Claimant { import, claim, refusals });
                continue;
            }
            Verdict::LeftAlone(why) => (ImportState::LeftAlone, why),
            Verdict::Rejected => {
                let first = refusals.first().map(|refusal| refusal.message.clone());
                (ImportState::Rejected, first.unwrap_or_default())
            }
        };
        outcome.report(report::report(&import.key, state, message));
        outcome.refuse(&import.key, refusals);
    }
    claimants
}
