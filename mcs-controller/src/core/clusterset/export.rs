//! The export of one service by one cluster, its properties, which the import has too, and its state in one word.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use mcs_kube::reasons::{ExportState, Reason};
use serde::{Deserialize, Serialize};

use super::{
    ClusterId, Condition, ConditionStatus, ConditionType, InternalTrafficPolicy, IpFamily,
    ServiceName, ServicePort, ServiceType, SessionAffinity,
    label::{usable_annotations, usable_labels},
};

/// Seconds since the Unix epoch, the resolution of `metadata.creationTimestamp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// 2015, the year of Kubernetes 1.0.
const KUBERNETES: Timestamp = Timestamp(1_420_070_400);

impl Timestamp {
    /// A time before Kubernetes comes from an unset clock, and does not make an export the oldest.
    const fn or_youngest(self) -> Self {
        if self.0 < KUBERNETES.0 { Self(i64::MAX) } else { self }
    }
}

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
    /// `spec.ips` of the ServiceImport in the exporting cluster.
    pub vips: Vec<IpAddr>,
    /// The clusters that the export is for.
    pub audience: Audience,
}

impl Export {
    /// The order of precedence: the least is the oldest. The cluster decides between equal times.
    pub fn precedence(&self) -> (Timestamp, &ClusterId) {
        (self.created.or_youngest(), &self.cluster)
    }

    /// The properties of the Service; absent if there is nothing to export.
    pub const fn spec(&self) -> Option<&ServiceSpec> {
        match &self.source {
            ExportSource::Service(spec) => Some(spec),
            ExportSource::ExternalName | ExportSource::Missing => None,
        }
    }

    /// The export without the labels and annotations that no import can have: an API server refuses an ExportedService with
    /// them.
    #[must_use]
    pub fn publishable(mut self) -> Self {
        if let ExportSource::Service(spec) = &mut self.source {
            spec.labels = usable_labels(&spec.labels);
            spec.annotations = usable_annotations(&spec.annotations);
        }
        self
    }

    /// Whether the export is for `cluster`. It is always for the exporting cluster.
    pub fn reaches(&self, cluster: &ClusterId) -> bool {
        self.cluster == *cluster || self.audience.contains(cluster)
    }
}

/// What a ServiceExport names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExportSource {
    /// A Service of a type that can be exported.
    Service(ServiceSpec),
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
    /// These clusters, and the exporting one.
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

const PREFER_SAME_ZONE: &str = "PreferSameZone";

/// The properties that exports and imports have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceSpec {
    /// `spec.type` of the ServiceImport.
    pub service_type: ServiceType,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.ipFamilies`.
    pub ip_families: Vec<IpFamily>,
    /// `spec.sessionAffinity` and `spec.sessionAffinityConfig`.
    pub session_affinity: SessionAffinity,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<Arc<str>>,
    /// `spec.exportedLabels` of the ServiceExport; labels of the ServiceImport.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// `spec.exportedAnnotations` of the ServiceExport; annotations of the ServiceImport.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
}

impl ServiceSpec {
    /// `spec.trafficDistribution`, with `PreferClose` by its present name `PreferSameZone`.
    pub(super) fn distribution(&self) -> Option<&str> {
        match self.traffic_distribution.as_deref() {
            Some("PreferClose") => Some(PREFER_SAME_ZONE),
            other => other,
        }
    }

    /// Whether clients prefer the endpoints of their zone, and nothing nearer. `PreferSameNode` has no hints. Hints for
    /// nodes count only if every endpoint has one (kube-proxy, `topologyModeFromHints`), and endpoints of other clusters
    /// run on no node of this cluster. Hints for zones alone would hide that an endpoint is on the client's node.
    pub(super) fn prefers_same_zone(&self) -> bool {
        self.distribution() == Some(PREFER_SAME_ZONE)
    }
}

/// The state of an export with these conditions.
pub fn export_state(conditions: &[Condition]) -> ExportState {
    let is_true = |condition_type| {
        let condition = conditions.iter().find(|one| one.condition_type == condition_type);
        condition.map(|one| one.status == ConditionStatus::True)
    };
    let lacks = |condition_type| is_true(condition_type) == Some(false);
    let is_ready = is_true(ConditionType::Ready) == Some(true);
    let is_beyond = |one: &Condition| {
        one.condition_type == ConditionType::Valid && one.reason == Reason::OverLimit
    };
    // Peers get an export of which a part is unusable, such as its cluster selectors.
    if conditions.iter().any(is_beyond) {
        ExportState::OverLimit
    } else if lacks(ConditionType::Valid) && !is_ready {
        ExportState::Invalid
    } else if lacks(ConditionType::Ready) {
        ExportState::Unpublished
    } else if lacks(ConditionType::Imported) {
        ExportState::NotImported
    } else {
        ExportState::Exported
    }
}
