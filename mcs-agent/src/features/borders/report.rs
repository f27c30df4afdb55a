//! What lies outside of borders, in the report of an import, in `status` and in metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::core::{
    control::{
        metrics::{Families, figure},
        report::Report,
    },
    model::{FrontendId, Sections},
};

/// The name of the section.
pub(super) const SECTION: &str = "borders";

/// The endpoints of a port that a border excludes, for one IP family. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Outside {
    /// The first frontend of this port and family.
    pub(super) frontend: FrontendId,
    /// The ready endpoints of each cluster outside.
    pub(super) ready: BTreeMap<String, u32>,
    /// Whether an endpoint inside is ready.
    pub(super) is_served: bool,
}

impl Outside {
    /// Why nothing serves, for the report.
    pub(super) fn why_none(&self) -> String {
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

pub(super) fn lines(report: &Report) -> Vec<String> {
    let (bordered, refusing) = counts(report);
    if bordered == 0 {
        return Vec::new();
    }
    vec![format!(
        "Borders: {bordered} imports, {refusing} of them could be served from outside alone"
    )]
}

pub(super) fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let (bordered, refusing) = counts(report);
    families.gauges(
        "mcs_border_imports",
        "Imports with a border: served inside, or with a port that clusters outside alone could serve",
        ["state"],
        [("served", bordered - refusing), ("refusing", refusing)]
            .map(|(state, count)| ([state], figure(count))),
    )
}
