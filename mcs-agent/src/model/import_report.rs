//! The state of a ServiceImport, for `status` and the metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ObjectKey;

/// The state of a ServiceImport. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    /// The ServiceImport.
    pub import: ObjectKey,
    /// Whether clients reach its backends.
    pub state: ImportState,
    /// The reason for `state`; empty if the import is ready.
    pub message: String,
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
    /// The agent does not serve it: it is headless, has no VIP yet, its endpoints are not published
    /// here, or kube-proxy serves its derived Service.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Partial => "Partial",
            Self::Refusing => "Refusing",
            Self::LeftAlone => "LeftAlone",
            Self::Rejected => "Rejected",
        })
    }
}
