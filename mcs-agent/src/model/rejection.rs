use std::fmt;

use serde::{Deserialize, Serialize};

use super::ObjectRef;

/// Why something was turned down. The serialised form is stable: `status -o json` and the metrics
/// name reasons by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectionReason {
    /// The object cannot be read as its kind.
    Malformed,
    /// An entry of `spec.ips` is no IP address.
    VipInvalid,
    /// The VIP is unspecified, loopback, link-local, multicast or broadcast.
    VipForbidden,
    /// The same address twice in `spec.ips`.
    VipDuplicate,
    /// The VIP is an address of this node.
    VipIsNode,
    /// The VIP is an address of the API server.
    VipIsApiServer,
    /// The VIP is in none of `--vip-cidr`.
    VipOutsideCidr,
    /// Another ServiceImport holds this address, port and protocol.
    FrontendTaken,
    /// A port of the import is 0 or above 65535, or appears twice.
    PortInvalid,
    /// Neither TCP nor UDP.
    ProtocolUnsupported,
    /// `sessionAffinity` or its timeout is none of what the API allows.
    AffinityInvalid,
    /// `internalTrafficPolicy` is neither Cluster nor Local.
    TrafficPolicyInvalid,
    /// `internalTrafficPolicy: Local` needs `--cluster-id` and `--node-name`.
    TrafficPolicyNeedsIdentity,
    /// The slice's `addressType` is neither IPv4 nor IPv6.
    AddressTypeUnsupported,
    /// An endpoint's address is no address of the slice's `addressType`.
    EndpointInvalid,
    /// An endpoint's address is unspecified, loopback, link-local, multicast or broadcast.
    EndpointForbidden,
    /// An endpoint's address is itself a VIP.
    EndpointIsVip,
    /// A port of the slice is 0 or above 65535.
    EndpointPortInvalid,
    /// A cluster name or service name is longer than a label may be.
    NameTooLong,
    /// More than `--max-memory` has room for.
    Capacity,
}

impl fmt::Display for RejectionReason {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Something that was turned down, alone: all else goes on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Rejection {
    /// The object that asked for it.
    pub object: ObjectRef,
    /// Why.
    pub reason: RejectionReason,
    /// What exactly, and what to do: one sentence that stands alone.
    pub message: String,
}
