mod deferred;
mod draft;
mod room;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use mcs_common::{Address, FrontendKey};

pub use self::deferred::{Deferred, Shortage, Subject};
use self::{draft::Draft, target::Target};
use super::{Realized, Step, convert::frontend_key};
use crate::model::{DesiredChanges, DesiredState, Frontend, FrontendId};

/// How to get from what the maps hold to what is wanted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// In this order. After each of them every reader sees every frontend whole, as it was or as it
    /// is to be.
    pub steps: Vec<Step>,
    /// What there is no room for: it stays as it is, all else goes on.
    pub deferred: Vec<Deferred>,
}

/// The frontends that are wanted, by the key that the maps know them by.
type Wanted<'a> = BTreeMap<FrontendKey, (&'a FrontendId, &'a Frontend)>;

/// Plans the way from `realized` to `desired`; without steps if that is where we are.
///
/// VIPs and frontends that `desired` does not name go only if `prune`, which is for when every
/// source has synced. Until then a frontend that exists keeps its backends and may get more, and one
/// that seems to have changed hands is left alone: who it belongs to may not have been read yet.
///
/// What goes comes first, so that it makes room; then what shrinks, so that the backends in use
/// are never more than before or after; then what grows; then what is new, since no lasting failure
/// to insert may keep the rest from its changes; and a VIP last, when all its ports are there.
/// Readers are waited for only where there is no room otherwise, or when much waits for them.
pub fn plan(desired: &DesiredState, realized: &Realized, prune: bool) -> Plan {
    let wanted: Wanted<'_> =
        desired.frontends.iter().map(|(id, frontend)| (frontend_key(id), (id, frontend))).collect();
    let vips: BTreeSet<Address> = desired.vips.iter().map(|&ip| ip.into()).collect();

    let mut draft = Draft::new(realized);
    draft.clear_no_name();
    if prune {
        draft.delete_vips(&vips);
    }
    draft.delete_frontends(|key| prune && !wanted.contains_key(key));
    change(&mut draft, &wanted, prune);
    draft.insert_vips(&vips);
    draft.finish()
}

/// Plans the same where nothing outside of `scope` is other than it was when a plan left nothing to
/// do. If that is not everything, every source has synced.
pub fn plan_within(
    scope: &DesiredChanges,
    desired: &DesiredState,
    realized: &Realized,
    prune: bool,
) -> Plan {
    match scope {
        DesiredChanges::Everything => plan(desired, realized, prune),
        DesiredChanges::Backends(frontends) => plan_backends(desired, realized, frontends),
    }
}

fn plan_backends(desired: &DesiredState, realized: &Realized, ids: &BTreeSet<FrontendId>) -> Plan {
    let wanted: Wanted<'_> = ids
        .iter()
        .filter_map(|id| desired.frontends.get_key_value(id))
        .map(|(id, frontend)| (frontend_key(id), (id, frontend)))
        .collect();
    let mut draft = Draft::new(realized);
    change(&mut draft, &wanted, true);
    draft.finish()
}

/// Makes frontends what they are to become.
fn change(draft: &mut Draft<'_>, wanted: &Wanted<'_>, prune: bool) {
    draft.retire();
    let targets = targets(wanted, draft.realized(), prune);
    let (new, mut changed): (Vec<_>, Vec<_>) = targets.into_iter().partition(Target::is_new);
    changed.sort_by_key(Target::growth);
    for target in &changed {
        draft.realize(target);
    }
    draft.reaffirm();
    for target in &new {
        draft.realize(target);
    }
}

/// The wanted frontends that differ from what the maps hold.
fn targets<'a>(wanted: &Wanted<'a>, realized: &Realized, prune: bool) -> Vec<Target<'a>> {
    wanted
        .iter()
        .filter_map(|(key, (id, frontend))| match realized.index(key) {
            None => Some(Target::new(id, frontend)),
            Some(index) if prune => Some(Target::replace(realized, index, id, frontend)),
            Some(index) => Target::extend(realized, index, id, frontend),
        })
        .filter(|target| target.differs(realized))
        .collect()
}

#[cfg(test)]
mod tests;
