use std::{fmt, net::IpAddr};

use crate::model::{Capacity, FrontendId};

/// Something that the maps have no room for, so that it stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{subject} stays as it is, since the maps hold no more {shortage}")]
pub struct Deferred {
    /// What.
    pub subject: Subject,
    /// Of what there is too little.
    pub shortage: Shortage,
}

/// What can be deferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A frontend: its backends and attributes are the former ones; a new one is not there.
    Frontend(FrontendId),
    /// A VIP: it is not ours yet.
    Vip(IpAddr),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frontend(id) => id.fmt(f),
            Self::Vip(ip) => ip.fmt(f),
        }
    }
}

/// Of what there can be too little.
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
    /// A capacity with one more of what there is too little of, and nothing else.
    pub fn more_than(self, have: Capacity) -> Capacity {
        let one_more = |count: u32| count.saturating_add(1);
        match self {
            Self::Frontends | Self::Vips | Self::Services => {
                Capacity { frontends: one_more(have.frontends), ..Capacity::NONE }
            }
            Self::Endpoints | Self::Slots => {
                Capacity { endpoints: one_more(have.endpoints), ..Capacity::NONE }
            }
            Self::Clusters => Capacity { clusters: one_more(have.clusters), ..Capacity::NONE },
        }
    }
}
