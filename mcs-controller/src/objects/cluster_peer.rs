//! `ClusterPeer`: another cluster of the clusterset, as the operator of this one describes it.

use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use mcs_kube::{Decoder, Drain, ObjectKey, Traffic, duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::typed;
use crate::clusterset::{ClusterId, NamespaceRules};

/// The least time that counts as `spec.staleAfter`. A publisher that lives renews its Lease every ten seconds: with less,
/// it would be stale again and again.
const SHORTEST_STALE_AFTER: Duration = Duration::from_secs(20);

/// `spec` of a ClusterPeer. `deploy/helm/mcs-controller/crds` has its schema.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPeerSpec {
    /// The id of the cluster: the value of its ClusterProperty cluster.clusterset.k8s.io.
    pub cluster_id: String,
    /// The uid of the cluster: that of its namespace `kube-system`. A cluster that is rebuilt under its id has another uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// The Secret with the kubeconfig of the API server that has the mailbox.
    pub kubeconfig_secret_ref: SecretReference,
    /// The namespace in which the cluster publishes what it exports.
    #[serde(default = "default_mailbox")]
    pub mailbox: String,
    /// The namespaces that are imported from it.
    #[serde(default)]
    pub namespaces: NamespacePatterns,
    /// The addresses of its pods. Endpoints outside are rejected. Empty means any.
    #[serde(default, rename = "podCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub pod_cidrs: Vec<String>,
    /// After how long without a sign of life the peer counts as stale, such as `40s`.
    #[serde(default = "default_stale_after")]
    pub stale_after: String,
    /// What becomes of its endpoints while it is stale.
    #[serde(default)]
    pub when_stale: WhenStale,
    /// The limits of its mailbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<PeerLimits>,
    /// Its share of new clients in proportion to other clusters, 0 to 1000. Absent means 100 if another cluster has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Whether new clients get other clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,
    /// From this time on, a drain moves former clients too, if agents end their connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_deadline: Option<Timestamp>,
}

/// What becomes of the endpoints of a peer that gives no sign of life. They stay imported in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenStale {
    /// Clients use them as before.
    #[default]
    Keep,
    /// New clients of nodes that reach none of its pods get other clusters.
    EjectUnreachable,
    /// New clients get other clusters.
    Withdraw,
}

/// The limits of a peer's mailbox. Absent or 0 means the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerLimits {
    /// How many ExportedServices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<usize>,
    /// How many endpoints, all slices together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<usize>,
    /// How many bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

/// The limits of a peer's mailbox, with the defaults filled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// ExportedServices.
    pub services: usize,
    /// Endpoints of all slices.
    pub endpoints: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { services: 20_000, endpoints: 1_000_000, bytes: 128 << 20 }
    }
}

impl From<PeerLimits> for Limits {
    fn from(given: PeerLimits) -> Self {
        let or = |given: Option<usize>, default| given.filter(|most| *most > 0).unwrap_or(default);
        let default = Self::default();
        Self {
            services: or(given.services, default.services),
            endpoints: or(given.endpoints, default.endpoints),
            bytes: or(given.bytes, default.bytes),
        }
    }
}

/// Names of namespaces. A `*` at the end stands for any rest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NamespacePatterns {
    /// Only these; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// None of these.
    #[serde(default = "default_deny")]
    pub deny: Vec<String>,
}

impl Default for NamespacePatterns {
    fn default() -> Self {
        Self { allow: Vec::new(), deny: default_deny() }
    }
}

/// A key of a Secret in the controller's own namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SecretReference {
    /// `metadata.name`.
    pub name: String,
    /// The key of the kubeconfig.
    #[serde(default = "default_key")]
    pub key: String,
}

impl SecretReference {
    /// The kubeconfig in the Secret of that name.
    pub fn named(name: String) -> Self {
        Self { name, key: default_key() }
    }
}

fn default_mailbox() -> String {
    "mcs-mailbox".to_owned()
}

fn default_deny() -> Vec<String> {
    NamespaceRules::default().deny
}

fn default_stale_after() -> String {
    "40s".to_owned()
}

fn default_key() -> String {
    "kubeconfig".to_owned()
}

/// The types of the conditions of a ClusterPeer.
pub const PEER_CONDITIONS: [&str; 10] = [
    "Accepted",
    "Connected",
    "Synced",
    "ImportsWritten",
    "WithinLimits",
    "Fresh",
    "IdentityMatches",
    "CIDRsDisjoint",
    "Compatible",
    "PodsReachable",
];

/// The state of the peer, by the controller.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPeerStatus {
    /// One of each of [`PEER_CONDITIONS`].
    #[serde(default)]
    pub conditions: Vec<PeerCondition>,
    /// The number of services that the peer exports to this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<u32>,
    /// The number of their endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<u32>,
    /// The number of endpoints that this cluster rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_endpoints: Option<u32>,
    /// When the token of its kubeconfig expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires: Option<String>,
    /// A field that the next version adds.
    #[cfg(feature = "next")]
    #[serde(default)]
    pub moon: Option<String>,
    /// When its API server last answered, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<String>,
}

/// A condition of a ClusterPeer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerCondition {
    /// One of [`PEER_CONDITIONS`].
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for programs.
    pub reason: String,
    /// An explanation for people.
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: String,
    /// `metadata.generation` of the judged ClusterPeer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A ClusterPeer as the controller uses it.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerObject {
    /// Its id.
    pub cluster: ClusterId,
    /// The expected uid of the cluster. It counts if the cluster publishes its uid.
    pub uid: Option<String>,
    /// The Secret with the kubeconfig.
    pub secret: SecretReference,
    /// The namespace of the mailbox.
    pub mailbox: String,
    /// The namespaces that are imported.
    pub namespaces: NamespaceRules,
    /// The ranges of its pods; `None` means any.
    pub pod_ranges: Option<Vec<IpNet>>,
    /// After how long it is stale.
    pub stale_after: Duration,
    /// What becomes of its endpoints then.
    pub when_stale: WhenStale,
    /// The limits of its mailbox.
    pub limits: Limits,
    /// Its weight, if it has one.
    pub weight: Option<u32>,
    /// Whether new clients get other clusters.
    pub drain: Option<Drain>,
    /// `metadata.uid` and `metadata.generation`.
    pub version: PeerVersion,
    /// `status` as written.
    pub status: ClusterPeerStatus,
}

/// Which ClusterPeer it is, and in which state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct PeerVersion {
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// `metadata.generation`.
    #[serde(default)]
    pub generation: Option<i64>,
}

/// An unusable ClusterPeer.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokenPeer {
    /// Its id, if readable.
    pub cluster: Option<ClusterId>,
    /// Why it is unusable.
    pub error: String,
    /// `metadata.uid` and `metadata.generation`.
    pub version: PeerVersion,
    /// `status` as written.
    pub status: ClusterPeerStatus,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    metadata: PeerVersion,
    spec: ClusterPeerSpec,
    #[serde(default)]
    status: ClusterPeerStatus,
}

/// Decodes ClusterPeers.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerDecoder;

impl Decoder for PeerDecoder {
    type Value = Result<PeerObject, BrokenPeer>;

    /// An unusable peer is still a peer: imports from it stay.
    fn decode(_: ObjectKey, object: &Value) -> Result<Self::Value, String> {
        Ok(PeerObject::read(object).map_err(|error| {
            let cluster = object["spec"]["clusterId"].as_str();
            BrokenPeer {
                cluster: cluster.and_then(|cluster| cluster.parse().ok()),
                error,
                version: typed(&object["metadata"]).unwrap_or_default(),
                status: typed(&object["status"]).unwrap_or_default(),
            }
        }))
    }
}

impl PeerObject {
    fn read(object: &Value) -> Result<Self, String> {
        let Fields { metadata, spec, status } = typed(object)?;
        let range = |text: &String| {
            text.parse::<IpNet>().map_err(|_| format!("spec.podCIDRs: {text:?} is no range"))
        };
        let ranges = spec.pod_cidrs.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            cluster: spec.cluster_id.parse().map_err(|error| format!("spec.clusterId: {error}"))?,
            uid: spec.cluster_uid,
            secret: spec.kubeconfig_secret_ref,
            mailbox: spec.mailbox,
            namespaces: NamespaceRules { allow: spec.namespaces.allow, deny: spec.namespaces.deny },
            pod_ranges: (!ranges.is_empty()).then_some(ranges),
            stale_after: duration(&spec.stale_after)
                .ok_or_else(|| {
                    let text = &spec.stale_after;
                    format!("spec.staleAfter: {text:?} is no duration such as 40s or 5m")
                })?
                .max(SHORTEST_STALE_AFTER),
            when_stale: spec.when_stale,
            limits: spec.limits.unwrap_or_default().into(),
            weight: spec
                .weight
                .map(Traffic::check_weight)
                .transpose()
                .map_err(|error| format!("spec.weight: {error}"))?,
            drain: spec
                .drain
                .filter(|drain| *drain)
                .map(|_| Drain { deadline: spec.drain_deadline }),
            version: metadata,
            status,
        })
    }
}
