//! Rejections: the parts of objects that the agent does not use, with reasons.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ObjectKey, reasons::RejectionReason};

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
