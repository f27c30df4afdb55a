//! Borders: endpoints of clusters that no cluster selector matches serve nobody, if the owner of the service says so.
//!
//! A border comes before all other preferences. So whatever these fall back on is inside of it, and where nothing inside
//! serves, clients are refused.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use mcs_kube::wish::{self, Border};
use serde::{Deserialize, Serialize};

use crate::core::{
    control::{
        metrics::{Families, figure},
        report::Report,
    },
    feature::{Core, Definition, Feature, Follow},
    kernel::flows::FlowBounds,
    model::{FrontendId, NodeContext, RejectionReason, Sections, ServiceImport},
    rules::{
        Bounded, Choice, Fate, Preference, Wishes, candidate::Candidate, fields::ObjectProblem,
        tier::Tier,
    },
};

/// Borders in the list of features.
pub const FEATURE: Definition = Definition {
    start: |_, _| Ok(Some(Box::new(Ends))),
    preference: |_| Some(Box::new(Borders)),
    lines,
    metrics,
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
        choice.sections.add(SECTION, &outside);
    }
}

/// The name of the section.
const SECTION: &str = "borders";

/// The endpoints of a port that a border excludes, for one IP family. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Outside {
    /// The first frontend of this port and family.
    frontend: FrontendId,
    /// The ready endpoints of each cluster outside.
    ready: BTreeMap<String, u32>,
    /// Whether an endpoint inside is ready.
    is_served: bool,
}

impl Outside {
    /// Why nothing serves, for the report.
    fn why_none(&self) -> String {
        let Self { frontend, ready, .. } = self;
        let others = if ready.is_empty() {
            "no ready one is outside".to_owned()
        } else {
            let of = |(cluster, ready): (&String, &u32)| format!("{ready} of {cluster}");
            let of_clusters: Vec<_> = ready.iter().map(of).collect();
            format!("ready outside: {}", of_clusters.join(", "))
        };
        format!("no usable endpoint inside the border for {frontend} ({others})")
    }
}

fn of(report: &Sections) -> Vec<Outside> {
    report.get(SECTION).unwrap_or_default()
}

/// How many imports have a border, and how many of these have a port that only clusters outside could serve.
fn counts(report: &Report) -> (usize, usize) {
    let bordered = report.imports.iter().map(|import| of(&import.sections));
    let bordered: Vec<_> = bordered.filter(|ports| !ports.is_empty()).collect();
    let refuses = |one: &Outside| !one.is_served && !one.ready.is_empty();
    let refusing = bordered.iter().filter(|ports| ports.iter().any(refuses)).count();
    (bordered.len(), refusing)
}

fn lines(report: &Report) -> Vec<String> {
    let (bordered, refusing) = counts(report);
    if bordered == 0 {
        return Vec::new();
    }
    vec![format!(
        "Borders: {bordered} imports, {refusing} of them could be served from outside alone"
    )]
}

fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let (bordered, refusing) = counts(report);
    families.gauges(
        "mcs_border_imports",
        "Imports with a border: served inside, or with a port that clusters outside alone could serve",
        ["state"],
        [("served", bordered - refusing), ("refusing", refusing)]
            .map(|(state, count)| ([state], figure(count))),
    )
}
