//! How much of the config maps the desired state takes.

use serde::{Deserialize, Serialize};

use crate::core::{
    model::{Capacity, Departure},
    rules::Rules,
    tables::Realized,
};

/// How many entries of each sort the desired state has. Part of `mcs-agent status -o json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// VIPs.
    pub vips: usize,
    /// Frontends.
    pub frontends: usize,
    /// Backends of all frontends together, each as often as it has slots.
    pub endpoints: usize,
    /// Source clusters.
    pub clusters: usize,
    /// ServiceImports that can have frontends.
    #[serde(default)]
    pub imports: usize,
    /// Backends that are kept for their UDP clients. They take room that nothing else needs.
    #[serde(default)]
    pub kept: u32,
    /// Addresses in the maps that were VIPs and were handed back.
    #[serde(default)]
    pub handed_back: usize,
    /// Addresses in the maps whose imports were deleted: they are refused.
    #[serde(default)]
    pub gone: usize,
}

impl Usage {
    /// The usage of the desired state, and of the kept backends in the maps.
    pub(super) fn of(rules: &Rules, realized: &Realized) -> Self {
        let (desired, totals) = (rules.desired(), rules.totals());
        let departed = |departure| {
            desired.departed.values().filter(|departed| **departed == departure).count()
        };
        Self {
            vips: desired.vips.len(),
            frontends: desired.frontends.len(),
            endpoints: totals.slots,
            clusters: totals.clusters.len(),
            imports: desired.imports.len().min(desired.frontends.len()),
            kept: realized.kept_backends(),
            handed_back: departed(Departure::HandedBack),
            gone: departed(Departure::Gone),
        }
    }

    /// The addresses in the maps that were VIPs, by what has become of them.
    pub const fn departed(&self) -> [(Departure, usize); 2] {
        [(Departure::HandedBack, self.handed_back), (Departure::Gone, self.gone)]
    }

    /// The least capacity that has room for what is desired, and for the VIPs that have departed.
    pub(super) fn capacity(self) -> Capacity {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Capacity {
            vips: count(self.vips + self.handed_back + self.gone),
            frontends: count(self.frontends),
            endpoints: count(self.endpoints),
            clusters: count(self.clusters),
            imports: count(self.imports),
        }
    }
}
