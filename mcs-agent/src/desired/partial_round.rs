//! A partial round: the rules evaluate only the imports whose slices or tiers changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use super::{
    full_round::Evaluation,
    problem::{self, ObjectProblem},
    report,
    round::{Round, new_rejections},
    spill::Spills,
};
use crate::{
    model::{DesiredChanges, Kind, NodeContext, ObjectKey, ObjectRef, Rejection, RejectionReason},
    store::{DirtyObjects, Snapshot},
};

/// Evaluates the imports that are dirty, and replaces their reports, frontends and rejections in `latest`.
///
/// `None`: a full round has to decide, since the backends of all imports together do not fit, or since tiers come with
/// a problem.
pub(super) fn evaluate(
    latest: &mut Evaluation,
    snapshot: &Snapshot,
    dirty: &DirtyObjects,
    node: &NodeContext,
    spills: &mut Spills,
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
            with_tiers = claim.with_tiers(import, node)?;
            claim = &with_tiers;
            retiered.push((key.clone(), claim.clone()));
        }
        let mut assigned =
            claim.select_backends(import, snapshot, &latest.vips, node, spills, &mut ());
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
