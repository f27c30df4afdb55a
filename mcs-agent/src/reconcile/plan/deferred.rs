//! Changes that wait because the maps have no room for them.

use crate::model::Capacity;

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
