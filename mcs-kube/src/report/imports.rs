//! The state of each ServiceImport on a node.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Sections;
use crate::{ObjectKey, Tiers, reasons::LeftAloneReason};

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
