//! What new clients find in the maps of a node.

use std::net::SocketAddr;

use serde::Deserialize;

use super::{FrontendId, ImportList};
use crate::ObjectKey;

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
