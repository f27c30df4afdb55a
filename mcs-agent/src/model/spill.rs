//! Spill: what the owner of a service asks for, and what each tier of source clusters gets.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::frontend::FrontendId;

/// What annotations of an import ask for, as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpillWish {
    /// The value of [`SPILL`](mcs_kube::wish::SPILL).
    pub spill: String,
    /// The value of [`FAILBACK_DELAY`](mcs_kube::wish::FAILBACK_DELAY).
    pub failback_delay: Option<String>,
}

/// The tiers of a port whose import asks for spill, for one IP family. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spill {
    /// The first frontend of this port and family.
    pub frontend: FrontendId,
    /// The tiers of the owner or operator, and a last tier with all other clusters.
    pub tiers: Vec<TierShare>,
}

/// What a tier gets of the new clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TierShare {
    /// Its source clusters that have endpoints, without the clusters of earlier tiers.
    pub clusters: Vec<Arc<str>>,
    /// How many of its endpoints are ready.
    pub ready: u32,
    /// How many endpoints it has.
    pub total: u32,
    /// Its share of the new clients, in parts per million.
    pub share: u32,
    /// Whether it gives a part to the next tier.
    pub state: TierState,
}

/// Whether a tier gives a part of its clients to the next one. The serialised names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierState {
    /// It takes all clients that earlier tiers leave.
    Whole,
    /// It takes the share that its ready endpoints can serve.
    Spills,
    /// It could take more, once `failback-delay` is over.
    Waits,
}

impl TierShare {
    /// All new clients.
    pub const ALL: u32 = 1_000_000;

    /// Whether the tier has this source cluster.
    pub fn has(&self, cluster: &str) -> bool {
        self.clusters.iter().any(|one| **one == *cluster)
    }
}

impl Spill {
    /// The number of the tier that has a source cluster, from 1.
    pub fn number_of(&self, cluster: &str) -> Option<usize> {
        self.tiers.iter().position(|tier| tier.has(cluster)).map(|place| place + 1)
    }
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
