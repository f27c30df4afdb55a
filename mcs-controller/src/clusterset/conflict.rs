//! What the exports of one service disagree about.

use std::fmt;

use super::ClusterId;

/// A property that not all exports agree on. It displays as a sentence for the condition `Conflict`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The reason of the condition.
    pub reason: ConflictReason,
    /// The cluster with the oldest export; absent if the ServiceImport's own record decides, because a cluster
    /// that it names cannot be read.
    pub decided_by: Option<ClusterId>,
    /// The value that counts.
    pub value: String,
    /// The clusters that have another value, sorted.
    pub disagree: Vec<ClusterId>,
    /// The number of clusters that export the service.
    pub clusters: usize,
}

/// `reason` of the condition `Conflict`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConflictReason {
    /// `ports`.
    PortConflict,
    /// ClusterSetIP or headless.
    TypeConflict,
    /// `sessionAffinity`.
    SessionAffinityConflict,
    /// `sessionAffinityConfig`.
    SessionAffinityConfigConflict,
    /// `exportedLabels`.
    LabelsConflict,
    /// `exportedAnnotations`.
    AnnotationsConflict,
    /// `internalTrafficPolicy`.
    InternalTrafficPolicyConflict,
    /// `trafficDistribution`.
    TrafficDistributionConflict,
    /// `ipFamilies`.
    IPFamilyConflict,
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
