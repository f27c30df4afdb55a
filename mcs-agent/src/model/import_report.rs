//! The state of a ServiceImport, for `status` and the metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ObjectKey, Spill, Tiers};

/// The state of a ServiceImport. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    /// The ServiceImport.
    pub import: ObjectKey,
    /// Whether clients reach its backends.
    pub state: ImportState,
    /// The reason for `state`; empty for an import that is ready, unless drained clusters serve it. For an import that is
    /// left alone, also how to hand it to the agent.
    pub message: String,
    /// Why it is left alone; absent in every other state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<LeftAloneReason>,
    /// The tiers of source clusters, if the service has cluster selectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Tiers>,
    /// What each tier gets, if the service asks for spill and has tiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spill: Vec<Spill>,
}

impl ImportReport {
    /// Whether source clusters have tiers.
    pub const fn has_tiers(&self) -> bool {
        self.tiers.is_some() || !self.spill.is_empty()
    }

    /// The number of the tier of a source cluster, from 1.
    pub fn tier_of(&self, cluster: &str) -> Option<usize> {
        let spilling = || self.spill.iter().find_map(|spill| spill.number_of(cluster));
        self.tiers.as_ref().and_then(|tiers| tiers.number_of(cluster)).or_else(spilling)
    }
}

/// Why the agent does not serve an import on purpose. The serialised names are stable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftAloneReason {
    /// A controller keeps it as a record of another import or Service.
    Record,
    /// DNS serves it.
    Headless,
    /// `status.endpointSliceObjects` is Absent.
    NotPublished,
    /// It has no slice, and kube-proxy serves its derived Service.
    DerivedService,
    /// Clusters lack slices here, and kube-proxy serves its derived Service.
    SlicesIncomplete,
    /// Its endpoints are ClusterIPs, and kube-proxy serves its derived Service.
    ClusterIpEndpoints,
    /// It has no slice, and a Service can have its VIP.
    ServiceRange,
    /// It has no VIP.
    NoClusterSetIp,
}

impl fmt::Display for LeftAloneReason {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Whether the clients of a ServiceImport reach its backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ImportState {
    /// Every frontend has a usable backend.
    Ready,
    /// Some frontends have no usable backend. They refuse every client.
    Partial,
    /// No frontend has a usable backend. They refuse every client.
    Refusing,
    /// The agent does not serve it, for a [`LeftAloneReason`].
    LeftAlone,
    /// Nothing of it can be used.
    Rejected,
}

impl ImportState {
    /// In the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Ready, Self::Partial, Self::Refusing, Self::LeftAlone, Self::Rejected];
}

impl fmt::Display for ImportState {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
