//! A ServiceImport as this cluster should have it.

use std::{collections::BTreeSet, net::IpAddr};

use mcs_kube::Tiers;

use super::{
    ClusterId, Condition, ConditionType, ServiceName, ServiceSpec, condition::differ_in_words,
};

/// A ServiceImport without its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// `metadata`.
    pub name: ServiceName,
    /// `spec.ips`, one for each entry of `spec.ip_families` and in the same order. A headless import has none.
    pub ips: Vec<IpAddr>,
    /// What the exports agree on.
    pub spec: ServiceSpec,
    /// Whether an annotation names the derived Service.
    pub has_derived_service: bool,
    /// The results of the cluster selectors, if there are any: an annotation, whatever fields the definition has.
    pub tiers: Option<Tiers>,
}

/// `status` of a ServiceImport. It has no times: a change of an import costs every node of the cluster a full
/// evaluation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportStatus {
    /// `clusters`.
    pub clusters: BTreeSet<ClusterId>,
    /// `endpointSliceObjects`; absent until all slices are written.
    pub endpoint_slice_objects: Option<EndpointSliceObjects>,
    /// `conditions`.
    pub conditions: Vec<Condition>,
    /// `clusterSelectorResults`, if the definition has it (KEP-5939).
    pub tiers: Option<Tiers>,
}

impl ImportStatus {
    /// The condition of this type.
    pub fn condition(&self, condition_type: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.condition_type == condition_type)
    }

    /// Whether only the words of conditions differ.
    pub fn differs_in_words(&self, other: &Self) -> bool {
        self.clusters == other.clusters
            && self.endpoint_slice_objects == other.endpoint_slice_objects
            && self.tiers == other.tiers
            && differ_in_words(&self.conditions, &other.conditions)
    }
}

/// `status.endpointSliceObjects` of a ServiceImport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointSliceObjects {
    /// The cluster holds slices of the service.
    Present,
}

impl EndpointSliceObjects {
    /// The value of the field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "Present",
        }
    }
}
