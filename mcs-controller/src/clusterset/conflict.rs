//! What the exports of one service disagree about.

use std::fmt;

use super::ClusterId;

/// A property that not all exports agree on. It displays as a sentence for the condition `Conflict`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The reason of the condition.
    pub reason: ConflictReason,
    /// The cluster with the oldest export; absent if the ServiceImport decides, because it names a cluster
    /// that cannot be read.
    pub decided_by: Option<ClusterId>,
    /// The value that counts.
    pub value: String,
    /// The clusters that have another value, sorted.
    pub disagree: Vec<ClusterId>,
    /// The number of clusters that export the service.
    pub clusters: usize,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, decided_by, value, disagree, clusters } = self;
        write!(f, "{}: {} of {clusters} clusters disagree (", reason.field(), disagree.len())?;
        for (index, cluster) in disagree.iter().enumerate() {
            write!(f, "{}{cluster}", if index == 0 { "" } else { ", " })?;
        }
        match decided_by {
            Some(cluster) => write!(f, "); cluster {cluster} has the oldest export")?,
            None => write!(f, "); the ServiceImport keeps what it has")?,
        }
        write!(f, ", so the clusterset uses {value}")
    }
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

impl ConflictReason {
    /// The field, as users know it.
    pub const fn field(self) -> &'static str {
        match self {
            Self::PortConflict => "ports",
            Self::TypeConflict => "type",
            Self::SessionAffinityConflict => "sessionAffinity",
            Self::SessionAffinityConfigConflict => "sessionAffinityConfig",
            Self::LabelsConflict => "exportedLabels",
            Self::AnnotationsConflict => "exportedAnnotations",
            Self::InternalTrafficPolicyConflict => "internalTrafficPolicy",
            Self::TrafficDistributionConflict => "trafficDistribution",
            Self::IPFamilyConflict => "ipFamilies",
        }
    }
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
