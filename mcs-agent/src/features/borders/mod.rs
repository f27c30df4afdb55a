//! Borders: endpoints of clusters that no cluster selector matches serve nobody, if the owner of the service says so.
//!
//! A border comes before all other preferences. So whatever these fall back on is inside of it, and where nothing inside
//! serves, clients are refused.

mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use mcs_kube::wish::{self, Border};

use self::report::Outside;
use crate::core::{
    feature::{Core, Definition, Feature, Follow},
    kernel::flows::FlowBounds,
    model::{NodeContext, RejectionReason, ServiceImport},
    rules::{
        Bounded, Choice, Fate, Preference, Wishes, candidate::Candidate, problem::ObjectProblem,
        tier::Tier,
    },
};

/// Borders in the list of features.
pub const FEATURE: Definition = Definition {
    start: |_, _| Ok(Some(Box::new(Ends))),
    preference: |_| Some(Box::new(Borders)),
    lines: report::lines,
    metrics: report::metrics,
    ..Definition::named("borders")
};

#[derive(Debug)]
struct Borders;

/// Ends the flows that a border excludes.
struct Ends;

impl Feature for Ends {
    fn each_second(&mut self, core: &mut Core) -> Follow {
        let is_bounded = core.engine.synced() && core.engine.is_bounded();
        let bounds = is_bounded.then(|| FlowBounds::of(core.engine.desired()));
        core.sweeper.set_bounds(bounds.unwrap_or_default());
        Follow::Nothing
    }
}

/// The border that the owner of the service has set.
fn border(import: &ServiceImport, problems: &mut Vec<ObjectProblem>) -> Option<Border> {
    Border::parse(import.setting(wish::SELECTORS_FALLBACK)?).unwrap_or_else(|message| {
        problems.push(ObjectProblem::new(RejectionReason::BorderInvalid, message));
        Some(Border::Ends)
    })
}

/// Whether one of the tiers of the owner has the cluster. The operator's preference is no border.
fn is_inside(cluster: &str, tiers: &[Tier], node: &NodeContext) -> bool {
    tiers.iter().any(|tier| *tier != Tier::Preferred && tier.has(cluster, node))
}

impl Preference for Borders {
    fn read(&self, import: &ServiceImport, _: &mut Wishes, problems: &mut Vec<ObjectProblem>) {
        border(import, problems);
    }

    fn bound(&mut self, candidates: &mut Vec<Candidate<'_>>, choice: &mut Choice<'_>) {
        let Some(border) = border(choice.import, &mut Vec::new()) else { return };
        let (tiers, node) = (&choice.wishes.tiers, choice.node);
        let mut ready = BTreeMap::new();
        choice.recorder.step(candidates, &mut |candidates| {
            candidates.retain(|one| {
                let is_inside = is_inside(one.cluster, tiers, node);
                if !is_inside && one.conditions().ready {
                    *ready.entry(one.cluster.to_string()).or_default() += 1;
                }
                is_inside
            });
            Fate::OutsideBorder
        });
        let is_served = candidates.iter().any(|one| one.conditions().ready);
        let outside = Outside { frontend: choice.frontend, ready, is_served };
        choice.bounded =
            Some(Bounded { ends_clients: border == Border::Ends, why_none: outside.why_none() });
        choice.sections.add(report::SECTION, &outside);
    }
}
