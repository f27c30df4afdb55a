//! The order of precedence among imports that claim the same frontend.

use std::collections::BTreeMap;

use super::{claim::Claim, problem::ObjectProblem};
use crate::model::{FrontendId, ObjectKey, RejectionReason, ServiceImport};

/// An import with a valid claim, and the problems found in it so far.
#[derive(Clone, Debug)]
pub(super) struct Claimant<'a> {
    pub(super) import: &'a ServiceImport,
    pub(super) claim: Claim,
    pub(super) problems: Vec<ObjectProblem>,
}

/// Sorts by age, then namespace and name. An import without a creation time comes last.
pub(super) fn sort(claimants: &mut [Claimant<'_>]) {
    claimants.sort_by_key(|Claimant { import, .. }| {
        (import.created.is_none(), import.created, &import.key)
    });
}

/// The holder of every frontend: the index of the first claimant that claims it.
pub(super) fn holders(claimants: &[Claimant<'_>]) -> BTreeMap<FrontendId, usize> {
    let mut holders = BTreeMap::new();
    for (index, claimant) in claimants.iter().enumerate() {
        for frontend in claimant.claim.frontends() {
            holders.entry(frontend.id).or_insert(index);
        }
    }
    holders
}

/// The problem of every claimant of a frontend except its holder.
pub(super) fn taken(frontend: FrontendId, holder: &ObjectKey) -> ObjectProblem {
    ObjectProblem::new(
        RejectionReason::FrontendTaken,
        format!(
            "{frontend} is held by ServiceImport {holder}, which is older or comes first by name; \
             give one of them another ClusterSetIP or port"
        ),
    )
}
