//! What the exports of one service disagree about.

use std::{collections::BTreeMap, fmt};

use mcs_kube::reasons::Reason;

use super::ClusterId;

/// A property on which the exports disagree. It displays as a sentence for the condition `Conflict`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The reason of the condition.
    pub reason: Reason,
    /// The cluster with the oldest export; absent if the ServiceImport decides because it names an unreadable cluster.
    pub decided_by: Option<ClusterId>,
    /// The value that counts.
    pub value: String,
    /// The clusters that have another value, with that value.
    pub disagree: BTreeMap<ClusterId, String>,
    /// The number of clusters that export the service.
    pub clusters: usize,
    /// The endpoints that clients lose by the conflict.
    pub losses: Vec<Loss>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, decided_by, value, disagree, clusters, losses: _ } = self;
        write!(f, "{}: {} of {clusters} clusters disagree (", field(*reason), disagree.len())?;
        for (index, (cluster, other)) in disagree.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{cluster} has {other}")?;
        }
        match decided_by {
            Some(cluster) => write!(f, "); cluster {cluster} has the oldest export")?,
            None => write!(f, "); the ServiceImport keeps what it has")?,
        }
        write!(f, ", so the clusterset uses {value}")
    }
}

/// Endpoints that clients do not reach because of a conflict. It displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The cluster that has them.
    pub cluster: ClusterId,
    /// Their number. The merge leaves it 0, because it does not see slices.
    pub endpoints: usize,
    /// The port by which clients do not reach them; absent if clients do not reach them at all.
    pub port: Option<String>,
    /// How that cluster differs.
    pub cause: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, endpoints, port, cause } = self;
        match endpoints {
            0 => write!(f, "no endpoint of {cluster} is used")?,
            1 => write!(f, "1 endpoint of {cluster} is not used")?,
            _ => write!(f, "{endpoints} endpoints of {cluster} are not used")?,
        }
        if let Some(port) = port {
            write!(f, " for port {port}")?;
        }
        write!(f, ": {cause}")
    }
}

/// The field that clusters disagree about, as users know it.
const fn field(reason: Reason) -> &'static str {
    match reason {
        Reason::TypeConflict => "type",
        Reason::SessionAffinityConflict => "sessionAffinity",
        Reason::SessionAffinityConfigConflict => "sessionAffinityConfig",
        Reason::LabelsConflict => "exportedLabels",
        Reason::AnnotationsConflict => "exportedAnnotations",
        Reason::InternalTrafficPolicyConflict => "internalTrafficPolicy",
        Reason::TrafficDistributionConflict => "trafficDistribution",
        Reason::ClusterSelectorsConflict => "clusterSelectors",
        Reason::IPFamilyConflict => "ipFamilies",
        _ => "ports",
    }
}
