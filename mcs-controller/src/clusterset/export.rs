//! What one cluster exports under one name.

use std::{collections::BTreeMap, collections::BTreeSet, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    ClusterId, InternalTrafficPolicy, IpFamily, ServiceName, ServicePort, ServiceType,
    SessionAffinity,
};

/// Seconds since the Unix epoch, the resolution of `metadata.creationTimestamp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A ServiceExport with the properties of its Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The cluster that exports.
    pub cluster: ClusterId,
    /// The name of the ServiceExport, which is that of the Service.
    pub name: ServiceName,
    /// `metadata.creationTimestamp` of the ServiceExport. The oldest export decides conflicts.
    pub created: Timestamp,
    /// What the ServiceExport names.
    pub source: ExportSource,
    /// `spec.ports` of the Service.
    pub ports: Vec<ServicePort>,
    /// `spec.sessionAffinity` of the Service.
    pub session_affinity: SessionAffinity,
    /// `spec.internalTrafficPolicy` of the Service.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// `spec.trafficDistribution` of the Service.
    pub traffic_distribution: Option<Arc<str>>,
    /// `spec.ipFamilies` of the Service.
    pub ip_families: Vec<IpFamily>,
    /// `spec.exportedLabels` of the ServiceExport.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.exportedAnnotations` of the ServiceExport.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.ips` of the ServiceImport in the exporting cluster.
    pub vips: Vec<IpAddr>,
    /// The clusters that the export is for.
    pub audience: Audience,
}

impl Export {
    /// The order of precedence: the least is the oldest. The cluster decides between equal times.
    pub fn precedence(&self) -> (Timestamp, &ClusterId) {
        (self.created, &self.cluster)
    }

    /// Whether `cluster` gets the export. The exporting cluster always does.
    pub fn reaches(&self, cluster: &ClusterId) -> bool {
        self.cluster == *cluster || self.audience.contains(cluster)
    }
}

/// What a ServiceExport names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportSource {
    /// A Service of a type that can be exported.
    Service(ServiceType),
    /// A Service of type ExternalName, which has no endpoints.
    ExternalName,
    /// There is no Service of this name.
    Missing,
}

/// The clusters that an export is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Audience {
    /// Every cluster of the clusterset.
    #[default]
    All,
    /// These clusters, and the one that exports.
    Only(BTreeSet<ClusterId>),
}

impl Audience {
    fn contains(&self, cluster: &ClusterId) -> bool {
        match self {
            Self::All => true,
            Self::Only(clusters) => clusters.contains(cluster),
        }
    }
}
