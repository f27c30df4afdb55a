//! The rules: from the objects of a snapshot to what the dataplane must do. Pure and synchronous.
//!
//! ```text
//! per import        all imports              per import                 all imports
//! claim::judge  ->  allotment::allot     ->  slice, selection       ->  capacity::bound  ->  report
//! its own words     precedence, VIP and      slices to backends,        endpoints and
//!                   frontend capacity        VIPs known                 source clusters
//! ```
//!
//! What a rule turns down becomes a [`Rejection`], and touches nothing else:
//!
//! | wrong | consequence |
//! |---|---|
//! | object cannot be read; name too long; affinity or traffic policy invalid | the import makes nothing |
//! | entry of `spec.ips` | that address is not ours |
//! | entry of `spec.ports` | that port is refused, like every unknown port of a VIP |
//! | frontend that an older import holds | the holder keeps it; both keep the VIP |
//! | `Local` without `--node-name` and `--cluster-id` | every client is refused |
//! | slice of another address type, or with a cluster name too long | the slice offers nothing |
//! | port or endpoint of a slice | that port or endpoint is not used |
//! | more VIPs or frontends than fit | those that are not in force are not made, the younger imports' first |
//! | more endpoints than fit | a frontend gets no more than it has; one that has none refuses |
//! | more source clusters than fit | the backends of those that are not in force are not used |

mod address;
mod affinity;
mod allotment;
mod candidate;
mod capacity;
mod claim;
mod condition;
mod endpoint;
mod name;
mod policy;
mod port;
mod precedence;
#[cfg(test)]
mod properties;
mod refusal;
mod report;
mod scope;
mod selection;
mod service;
mod slice;
#[cfg(test)]
mod tests;
mod topology;
mod vip;

use std::collections::BTreeMap;

use crate::{
    model::{
        Desired, ImportReport, ImportState, Kind, NodeContext, ObjectKey, ObjectRef, Reason,
        Rejection,
    },
    store::Snapshot,
};
use claim::Verdict;
use precedence::Claimant;
use refusal::Refusal;
use service::Service;
use slice::Offers;

/// What the objects ask of this node, and what is turned down of it.
///
/// Depends on its arguments alone: not on the order in which objects came. Where there is no room for
/// all, what is `in_force` keeps its room, and what is new is turned down.
pub fn compute(snapshot: &Snapshot, node: &NodeContext, in_force: &Desired) -> Desired {
    let mut outcome = Outcome::default();
    outcome.malformed(snapshot);
    let mut claimants = claimants(snapshot, node, &mut outcome);
    precedence::sort(&mut claimants);
    let allotment = allotment::allot(&mut claimants, node.capacity.frontends, in_force);
    let mut services: Vec<Service<'_>> = claimants
        .into_iter()
        .zip(allotment.holdings)
        .map(|(claimant, holding)| {
            let (offers, rejections) =
                Offers::read(snapshot.slices(&claimant.import.key), &allotment.vips);
            outcome.rejections.extend(rejections);
            Service::new(claimant, holding, &offers, node)
        })
        .collect();
    capacity::bound(&mut services, node.capacity, in_force);

    let vips = allotment.vips.into_keys().collect();
    let mut frontends = BTreeMap::new();
    for service in services {
        outcome.report(report::of_service(&service));
        outcome.refuse(&service.import.key, service.refusals);
        frontends.extend(service.frontends);
    }
    let Outcome { reports, mut rejections } = outcome;
    rejections.sort();
    Desired { vips, frontends, imports: reports.into_values().collect(), rejections }
}

/// What is told about objects, in no order.
#[derive(Default)]
struct Outcome {
    reports: BTreeMap<ObjectKey, ImportReport>,
    rejections: Vec<Rejection>,
}

impl Outcome {
    fn report(&mut self, report: ImportReport) {
        self.reports.insert(report.import.clone(), report);
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
            self.rejections.push(Refusal::new(Reason::Malformed, message).of(object));
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
