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

/// Who gets a frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    /// The index of the claimant.
    pub(super) index: usize,
    /// Whether others claim it too.
    pub(super) is_contested: bool,
}

/// The holder of every frontend: the first claimant that has slices, or else the first one.
///
/// An import without slices can be a controller's note of a service that another import leads to.
pub(super) fn holders(claimants: &[Claimant<'_>]) -> BTreeMap<FrontendId, Holder> {
    let mut holders: BTreeMap<FrontendId, Holder> = BTreeMap::new();
    for (index, claimant) in claimants.iter().enumerate() {
        for frontend in claimant.claim.frontends() {
            holders
                .entry(frontend.id)
                .and_modify(|holder| {
                    holder.is_contested = true;
                    if claimant.claim.has_slices && !claimants[holder.index].claim.has_slices {
                        holder.index = index;
                    }
                })
                .or_insert(Holder { index, is_contested: false });
        }
    }
    holders
}

/// The problem of every claimant of a frontend except its holder.
pub(super) fn taken(frontend: FrontendId, holder: &ObjectKey) -> ObjectProblem {
    ObjectProblem::new(
        RejectionReason::FrontendTaken,
        format!(
            "{frontend} is held by ServiceImport {holder}, which goes first: one with slices before one \
             without, then the older, then by name; give one of them another ClusterSetIP or port"
        ),
    )
}
