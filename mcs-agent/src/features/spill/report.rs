//! What each tier of source clusters gets, in the report of an import.

use std::{fmt, sync::Arc};

use mcs_kube::Tier;
use serde::{Deserialize, Serialize};

use crate::core::{
    feature::TierLine,
    model::{FrontendId, Sections, Tiers},
    rules::Share,
};

/// The name of the section.
pub(super) const SECTION: &str = "spill";

/// The tiers of a port whose import asks for spill, for one IP family. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Spill {
    /// The first frontend of this port and family.
    pub(super) frontend: FrontendId,
    /// The tiers of the owner or operator, and a last tier with all other clusters.
    pub(super) tiers: Vec<TierShare>,
}

/// What a tier gets of the new clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TierShare {
    /// Its source clusters that have endpoints, without the clusters of earlier tiers.
    pub(super) clusters: Vec<Arc<str>>,
    /// How many of its endpoints are ready.
    pub(super) ready: u32,
    /// How many endpoints it has.
    pub(super) total: u32,
    /// Its share of the new clients, in parts per million.
    pub(super) share: u32,
    /// Whether it gives a part to the next tier.
    pub(super) state: TierState,
}

/// Whether a tier gives a part of its clients to the next one. The serialised names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TierState {
    /// It takes all clients that earlier tiers leave.
    Whole,
    /// It takes the share that its ready endpoints can serve.
    Spills,
    /// It could take more, once `failback-delay` is over.
    Waits,
}

impl TierShare {
    /// All new clients.
    pub(super) const ALL: u32 = 1_000_000;

    /// What its clusters get.
    pub(super) fn as_share(&self) -> Share {
        Share { clusters: self.clusters.clone(), share: self.share }
    }

    pub(super) fn has(&self, cluster: &str) -> bool {
        self.clusters.iter().any(|one| **one == *cluster)
    }
}

/// What the report of an import says.
pub(super) fn of(report: &Sections) -> Vec<Spill> {
    report.get(SECTION).unwrap_or_default()
}

/// The tiers of each port, for people.
pub(super) fn tiers(report: &Sections) -> Vec<TierLine> {
    let line = |spill: Spill| {
        let text = spill.to_string();
        let tiers = spill.tiers.into_iter().map(|tier| Tier { clusters: tier.clusters });
        TierLine { name: "Spill", tiers: Tiers(tiers.collect()), text }
    };
    of(report).into_iter().map(line).collect()
}

impl fmt::Display for Spill {
    /// `10.96.0.1:80/TCP: tier 1 (east) 1 of 20 ready, spills, 7.0%; tier 2 (west) 2 of 2 ready, 93.0%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.frontend)?;
        let with_endpoints = (1..).zip(&self.tiers).filter(|(_, tier)| tier.total > 0);
        for (nth, (number, tier)) in with_endpoints.enumerate() {
            let separator = if nth == 0 { "" } else { ";" };
            let TierShare { clusters, ready, total, share, state } = tier;
            let clusters = clusters.join(", ");
            let state = match state {
                TierState::Whole => "",
                TierState::Spills => "spills, ",
                TierState::Waits => "waits for failback-delay, ",
            };
            let percent = f64::from(*share) * 100.0 / f64::from(TierShare::ALL);
            write!(
                f,
                "{separator} tier {number} ({clusters}) {ready} of {total} ready, {state}{percent:.1}%"
            )?;
        }
        Ok(())
    }
}
