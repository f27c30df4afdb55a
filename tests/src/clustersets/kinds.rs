//! The kinds of objects that an API server of a played cluster serves.

/// A kind.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
    pub(super) is_namespaced: bool,
    /// Whether its status is written apart from all else.
    pub(super) has_status: bool,
}

const fn kind(api: [&'static str; 4], is_namespaced: bool, has_status: bool) -> Kind {
    let [group, version, name, plural] = api;
    Kind { group, version, name, plural, is_namespaced, has_status }
}

const MCS: &str = "multicluster.x-k8s.io";
const OWN: &str = "clusterset.mcs-agent.io";

const KINDS: [Kind; 14] = [
    kind(["", "v1", "Namespace", "namespaces"], false, true),
    kind(["", "v1", "Node", "nodes"], false, true),
    kind(["", "v1", "Secret", "secrets"], true, false),
    kind(["", "v1", "Service", "services"], true, true),
    kind(["networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs"], false, true),
    kind(["discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"], true, false),
    kind(["coordination.k8s.io", "v1", "Lease", "leases"], true, false),
    kind(["events.k8s.io", "v1", "Event", "events"], true, false),
    kind(["about.k8s.io", "v1beta1", "ClusterProperty", "clusterproperties"], false, true),
    kind([MCS, "v1beta1", "ServiceExport", "serviceexports"], true, true),
    kind([MCS, "v1beta1", "ServiceImport", "serviceimports"], true, true),
    kind([OWN, "v1alpha1", "ClusterPeer", "clusterpeers"], false, true),
    kind([OWN, "v1alpha1", "ExportedService", "exportedservices"], true, false),
    kind([OWN, "v1alpha1", "ExportRule", "exportrules"], true, true),
];

impl Kind {
    /// The kind of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The kind of this path.
    pub(super) fn at(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        let is_meant =
            |kind: &&Self| (kind.group, kind.version, kind.plural) == (group, version, plural);
        KINDS.iter().find(is_meant)
    }

    /// The kind of this plural.
    pub(super) fn of(plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// `apiVersion`.
    pub(super) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}
