//! What a round of the rules has changed.

use std::{collections::BTreeMap, net::IpAddr};

use crate::core::model::{Departure, DesiredChanges, Rejection, RejectionReason};

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
