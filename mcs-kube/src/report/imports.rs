//! The state of each ServiceImport on a node, the parts of objects that the agent does not use, and what new clients find
//! in the maps.

use std::{fmt, net::SocketAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{FrontendId, Sections};
use crate::{
    ObjectKey, Tiers,
    reasons::{LeftAloneReason, RejectionReason},
};

/// The ServiceImports of a node. Part of `mcs-agent services -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportList {
    /// Whether the status file was read and says how things are now. If not, nothing is known of imports without frontend.
    pub reported: bool,
    /// Why not: `imports` are then as of another time, or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<String>,
    /// Every ServiceImport and its state, from the status file.
    pub imports: Arc<Vec<Arc<ImportReport>>>,
}

/// The state of a ServiceImport. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    /// The ServiceImport.
    pub import: ObjectKey,
    /// Whether clients reach its backends.
    pub state: ImportState,
    /// The reason for `state`; empty for an import that is ready, unless drained clusters serve it. For an import that is
    /// left alone, also how to hand it to the agent.
    pub message: String,
    /// Why it is left alone; absent in every other state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<LeftAloneReason>,
    /// The tiers of source clusters, if the service has cluster selectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Tiers>,
    /// What preferences of features say of it.
    #[serde(flatten)]
    pub sections: Sections,
}

/// Whether the clients of a ServiceImport reach its backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ImportState {
    /// Every frontend has a usable backend.
    Ready,
    /// Some frontends have no usable backend. They refuse every client.
    Partial,
    /// No frontend has a usable backend. They refuse every client.
    Refusing,
    /// The agent does not serve it, for a [`LeftAloneReason`].
    LeftAlone,
    /// Nothing of it can be used.
    Rejected,
}

impl ImportState {
    /// In the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Ready, Self::Partial, Self::Refusing, Self::LeftAlone, Self::Rejected];
}

impl fmt::Display for ImportState {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The kinds that the agent reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// `multicluster.x-k8s.io` ServiceImport.
    ServiceImport,
    /// `discovery.k8s.io` EndpointSlice that carries the MCS service-name label, or is adopted.
    EndpointSlice,
    /// A Service that the agent adopts as an import.
    Service,
}

impl fmt::Display for Kind {
    /// As serialised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A reference to an object. Displays as `ServiceImport namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectRef {
    /// ServiceImport, EndpointSlice or Service.
    pub kind: Kind,
    /// Flattened to `namespace` and `name` in JSON.
    #[serde(flatten)]
    pub key: ObjectKey,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
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

/// The part of `mcs-agent services -o json` that `mcs` reads.
#[derive(Clone, Debug, Deserialize)]
pub struct ServiceTables {
    /// Every ServiceImport and its state.
    #[serde(flatten)]
    pub list: ImportList,
    /// Every frontend in the maps.
    pub frontends: Vec<Frontend>,
}

/// A frontend in the maps.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Frontend {
    /// The ServiceImport that it belongs to.
    #[serde(flatten)]
    pub import: ObjectKey,
    /// The ClusterSetIP, port and protocol.
    #[serde(flatten)]
    pub frontend: FrontendId,
    /// Where its clients go. None: they are refused.
    pub backends: Vec<Backend>,
}

/// A backend in the maps.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Backend {
    /// The pod's address and port.
    pub address: SocketAddr,
}
