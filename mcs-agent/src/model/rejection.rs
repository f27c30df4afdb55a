//! Rejections: the parts of objects that the agent does not use, with reasons.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ObjectRef;

/// Why a part of an object is rejected. The serialised names are stable: `status -o json` and the
/// metrics use them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectionReason {
    /// The object cannot be read as its kind.
    Malformed,
    /// An entry of `spec.ips` is no IP address.
    VipInvalid,
    /// The VIP is unspecified, loopback, link-local, multicast or broadcast.
    VipForbidden,
    /// `spec.ips` lists the address twice.
    VipDuplicate,
    /// The VIP is an address of this node.
    VipIsNode,
    /// The VIP is an address of the API server.
    VipIsApiServer,
    /// The VIP is in a pod range of this node.
    VipIsPod,
    /// The VIP is outside every `--vip-cidr`.
    VipOutsideCidr,
    /// Another ServiceImport holds this VIP, port and protocol.
    FrontendTaken,
    /// A port of the import is 0 or above 65535, or its name or number comes twice.
    PortInvalid,
    /// The protocol is neither TCP nor UDP.
    ProtocolUnsupported,
    /// The API does not allow this `sessionAffinity` or timeout.
    AffinityInvalid,
    /// `internalTrafficPolicy` is neither Cluster nor Local.
    TrafficPolicyInvalid,
    /// `internalTrafficPolicy: Local` needs `--cluster-id` and `--node-name`.
    TrafficPolicyNeedsIdentity,
    /// The annotation about preferred clusters is neither local, remote nor none.
    ClusterAffinityUnknown,
    /// The annotation about preferred clusters needs `--cluster-id`.
    ClusterAffinityNeedsIdentity,
    /// The results of the cluster selectors cannot be read.
    SelectorResultsInvalid,
    /// An annotation about spill is unknown or out of bounds.
    SpillInvalid,
    /// The annotation about passive health is neither on nor off.
    PassiveHealthInvalid,
    /// The agent does not know this `trafficDistribution`.
    TrafficDistributionUnknown,
    /// The slice's `addressType` is neither IPv4 nor IPv6.
    AddressTypeUnsupported,
    /// An endpoint's address does not fit the slice's `addressType`.
    EndpointInvalid,
    /// An endpoint's address is unspecified, loopback, link-local, multicast or broadcast.
    EndpointForbidden,
    /// An endpoint's address is itself a VIP.
    EndpointIsVip,
    /// A port of the slice is 0 or above 65535.
    EndpointPortInvalid,
    /// A namespace or service name is longer than a label can be.
    NameTooLong,
    /// It does not fit into `--max-memory`.
    Capacity,
}

impl RejectionReason {
    /// Whether it concerns the source clusters that the import prefers. The import is served without the preference.
    pub const fn is_of_preference(self) -> bool {
        matches!(
            self,
            Self::ClusterAffinityUnknown
                | Self::ClusterAffinityNeedsIdentity
                | Self::SelectorResultsInvalid
                | Self::SpillInvalid
        )
    }
}

impl fmt::Display for RejectionReason {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Bytes of a message in `status` and in the log. Values in it come from objects and can be of any length.
const MESSAGE: usize = 500;

/// A message of at most [`MESSAGE`] bytes, and an ellipsis if it was longer.
pub(crate) fn shorten(message: &str) -> String {
    let end = message.floor_char_boundary(MESSAGE);
    let (kept, cut) = message.split_at(end);
    if cut.is_empty() { kept.to_owned() } else { format!("{kept}…") }
}

/// A part of an object that the agent does not use. It uses the other parts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Rejection {
    /// The object.
    pub object: ObjectRef,
    /// For programs and metrics.
    pub reason: RejectionReason,
    /// For people: one complete sentence with the value and what to do.
    pub message: String,
}
