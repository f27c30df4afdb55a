//! ClusterPeers as the controller uses them.

use std::time::Duration;

use ipnet::IpNet;
use mcs_kube::{
    Decoder, Drain, NamespaceRules, ObjectKey, Traffic, duration,
    objects::{self, Any, ClusterPeer, ClusterPeerStatus, PeerLimits, SecretReference, WhenStale},
};
use serde::Deserialize;
use serde_json::Value;

use crate::core::clusterset::ClusterId;

/// The least time that counts as `spec.staleAfter`. A publisher that lives renews its Lease every ten seconds: with less,
/// it would be stale again and again.
const SHORTEST_STALE_AFTER: Duration = Duration::from_secs(20);

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

/// Decodes ClusterPeers.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerDecoder;

impl Decoder for PeerDecoder {
    type Object = Any;
    type Value = Result<PeerObject, BrokenPeer>;

    /// An unusable peer is still a peer: imports from it stay.
    fn convert(_: &ObjectKey, Any(object): Any) -> Result<Self::Value, String> {
        Ok(PeerObject::read(&object).map_err(|error| {
            let cluster = object["spec"]["clusterId"].as_str();
            BrokenPeer {
                cluster: cluster.and_then(|cluster| cluster.parse().ok()),
                error,
                version: objects::read(&object["metadata"]).unwrap_or_default(),
                status: objects::read(&object["status"]).unwrap_or_default(),
            }
        }))
    }
}

impl PeerObject {
    fn read(object: &Value) -> Result<Self, String> {
        let ClusterPeer { metadata, spec, status } = objects::read(object)?;
        let range = |text: &String| {
            text.parse::<IpNet>().map_err(|_| format!("spec.podCIDRs: {text:?} is no range"))
        };
        let ranges = spec.pod_cidrs.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            cluster: spec.cluster_id.parse().map_err(|error| format!("spec.clusterId: {error}"))?,
            uid: spec.cluster_uid,
            secret: spec.kubeconfig_secret_ref,
            mailbox: spec.mailbox,
            namespaces: spec.namespaces,
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
            version: PeerVersion {
                uid: metadata.uid.unwrap_or_default(),
                generation: metadata.generation,
            },
            status: status.unwrap_or_default(),
        })
    }
}
