//! Makes the steps from the realized to the desired state.

mod builder;
mod frontend_change;

use std::collections::BTreeMap;

use mcs_common::{Address, FrontendKey, select::Tables as _};

use self::{builder::PlanBuilder, frontend_change::FrontendChange};
use super::{Realized, Step, contents::frontend_key};
use crate::core::model::{Capacity, DesiredChanges, DesiredState, Frontend, FrontendId, Parts};

/// The steps from the realized to the desired state.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// In order. After each of them every reader finds every frontend with its former or its new
    /// backends and attributes.
    pub steps: Vec<Step>,
    /// The changes that wait for room. All other changes are in `steps`, or in the plan that follows a part.
    pub deferred: Vec<Deferred>,
    /// The plan has ended early: after its steps, another is due.
    pub is_part: bool,
}

/// A change that waits for room in the maps.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{subject} stays as it is, since the maps hold no more {shortage}")]
pub struct Deferred {
    /// The frontend that keeps its backends and attributes or is not created, or the VIP that is not inserted.
    pub subject: String,
    /// What the maps have too few of.
    pub shortage: Shortage,
}

/// What the maps can have too few of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Shortage {
    /// Entries of `frontends`.
    #[error("frontends: raise --max-memory")]
    Frontends,
    /// Entries of `vips`.
    #[error("VIPs: raise --max-memory")]
    Vips,
    /// Entries of `services`.
    #[error("ServiceImports: raise --max-memory")]
    Services,
    /// Entries of `backends`.
    #[error("endpoints: raise --max-memory")]
    Endpoints,
    /// Consecutive entries of `slots`.
    #[error("endpoints in a row: raise --max-memory")]
    Slots,
    /// Entries of `clusters`.
    #[error("source clusters: raise --max-memory")]
    Clusters,
}

impl Shortage {
    /// A capacity of one more of the missing kind, and nothing else.
    pub fn more_than(self, have: Capacity) -> Capacity {
        let one_more = |count: u32| count.saturating_add(1);
        match self {
            Self::Vips => Capacity { vips: one_more(have.vips), ..Capacity::NONE },
            Self::Frontends => Capacity { frontends: one_more(have.frontends), ..Capacity::NONE },
            Self::Services => Capacity { imports: one_more(have.imports), ..Capacity::NONE },
            Self::Endpoints | Self::Slots => {
                Capacity { endpoints: one_more(have.endpoints), ..Capacity::NONE }
            }
            Self::Clusters => Capacity { clusters: one_more(have.clusters), ..Capacity::NONE },
        }
    }
}

/// A plan, and the realized state once the plan is carried out.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The realized state after its last step.
    pub realized: Realized,
}

impl Planned {
    /// These steps alone, and the state that they lead to from `realized`.
    #[cfg(test)]
    pub(crate) fn after(steps: Vec<Step>, realized: &Realized) -> Self {
        let realized = realized.after(&steps);
        Self { plan: Plan { steps, ..Plan::default() }, realized }
    }
}

/// The desired frontends, by their keys in the maps.
type Wanted<'a> = BTreeMap<FrontendKey, (&'a FrontendId, &'a Frontend)>;

/// Whether a plan deletes what `desired` does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruning {
    /// It deletes VIPs and frontends, and retires backends.
    On,
    /// It only adds: objects that ask for the other entries may not have been read yet. A frontend keeps its backends. A
    /// frontend that another import seems to have now stays as it is.
    Off,
}

impl Pruning {
    /// On as soon as the source has been read completely.
    pub const fn once(synced: bool) -> Self {
        if synced { Self::On } else { Self::Off }
    }

    const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// Plans the steps from `realized` to `desired`. There are none if both are equal.
///
/// The order:
/// 1. Deletions, which make room. A VIP that has departed gets its new mode.
/// 2. Frontends that get fewer backends: no more backends are in use at any time than before or after.
/// 3. Frontends that get more.
/// 4. New frontends: an insertion that keeps failing does not delay the changes above.
/// 5. VIPs, when all their ports are there.
///
/// A plan waits for readers only if it lacks room otherwise, or if many released entries wait.
pub fn plan(desired: &DesiredState, realized: &Realized, pruning: Pruning) -> Plan {
    plan_within(&DesiredChanges::Everything, desired, realized, pruning, usize::MAX).plan
}

/// Plans the changes within `scope`. The realized state must equal the desired one outside of it. A
/// scope other than everything requires that the source has synced.
///
/// The plan ends after `most_steps` or a few more: millions take much memory.
pub fn plan_within(
    scope: &DesiredChanges,
    desired: &DesiredState,
    realized: &Realized,
    pruning: Pruning,
    most_steps: usize,
) -> Planned {
    let by_key = |(id, frontend)| (frontend_key(id), (id, frontend));
    let mut builder = PlanBuilder::new(desired, realized, pruning, most_steps);
    match scope {
        DesiredChanges::Everything => {
            let wanted: Wanted<'_> = desired.frontends.iter().map(by_key).collect();
            builder.clear_no_name();
            builder.withdraw_vips(realized.contents().vips_of_mode(|_| true));
            let is_gone = |key: &FrontendKey| pruning.is_on() && !wanted.contains_key(key);
            let damaged = realized.damaged().iter().copied();
            builder.delete_frontends(damaged.chain(realized.frontends().filter(is_gone)));
            change(&mut builder, &wanted);
            builder.insert_vips(&desired.vips);
        }
        DesiredChanges::Parts(Parts { frontends, vips }) => {
            let found = frontends.iter().filter_map(|id| desired.frontends.get_key_value(id));
            let wanted: Wanted<'_> = found.map(by_key).collect();
            let known = vips.iter().map(|ip| Address::from(*ip));
            let contents = realized.contents();
            builder.withdraw_vips(known.filter_map(|vip| Some((vip, contents.vip(&vip)?))));
            let gone = frontends.iter().filter(|id| !desired.frontends.contains_key(id));
            let gone = gone.map(frontend_key).filter(|key| realized.index(key).is_some());
            builder.delete_frontends(gone);
            change(&mut builder, &wanted);
            builder.insert_vips(vips.intersection(&desired.vips));
        }
    }
    builder.finish()
}

/// Adds the steps that change and create frontends.
fn change(builder: &mut PlanBuilder<'_>, wanted: &Wanted<'_>) {
    builder.keep_or_retire();
    let mut new = Vec::new();
    let mut existing = Vec::new();
    for (key, &(id, frontend)) in wanted {
        let (realized, pruning) = (&builder.realized, builder.pruning);
        match realized.index(key) {
            None => new.push((id, frontend)),
            Some(index) => {
                existing.extend(FrontendChange::existing(realized, index, id, frontend, pruning));
            }
        }
    }
    existing.sort_by_key(FrontendChange::growth);
    for change in &existing {
        if builder.ends_here() {
            return;
        }
        builder.realize(change);
    }
    builder.keep_or_retire();
    // One after the other: a change of a new frontend lists all its backends.
    for (id, frontend) in new {
        if builder.ends_here() {
            return;
        }
        builder.realize(&FrontendChange::new(id, frontend));
    }
    builder.retire_kept(wanted.keys());
}

#[cfg(test)]
mod tests;
