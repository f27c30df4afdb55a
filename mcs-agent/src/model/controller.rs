//! The multi-cluster controllers whose objects the agent can adopt.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A multi-cluster controller whose objects the agent serves with `--adopt`. They lack the labels of
/// KEP-1645, or have another API group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// Antrea Multi-cluster: ServiceImports whose Service `antrea-mc-NAME` has the addresses of pods.
    Antrea,
    /// Multi-cluster Services of GKE: ServiceImports of the group `net.gke.io`.
    Gke,
    /// Karmada: Services of a `MultiClusterService`, and ServiceImports that it propagates.
    Karmada,
}

impl fmt::Display for Controller {
    /// The word of `--adopt`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The Service that a controller has made for an import, by a convention of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adoptable {
    /// The controller.
    pub controller: Controller,
    /// The Service's name, in the namespace of the import.
    pub service: String,
    /// Whether `--adopt` names the controller.
    pub is_adopted: bool,
}

/// Objects of a controller that `--adopt` would make the agent serve. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptableObjects {
    /// The word of `--adopt`.
    pub controller: Controller,
    /// The number of its ServiceImports that were read.
    pub imports: usize,
}

impl fmt::Display for AdoptableObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { controller, imports } = self;
        write!(
            f,
            "{imports} ServiceImports of {controller}: the agent serves them with --adopt={controller}"
        )
    }
}

/// An API group that the API server has, and the value of `--adopt` for its objects. Part of
/// `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AdoptableGroup {
    /// The word of `--adopt`.
    pub controller: Controller,
    /// The group, such as `net.gke.io`.
    pub group: String,
}

impl fmt::Display for AdoptableGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { controller, group } = self;
        let objects = match controller {
            Controller::Antrea => {
                "its ServiceImports, if it exports pod addresses (endpointIPType: PodIP)"
            }
            Controller::Gke => "its ServiceImports",
            Controller::Karmada => "the Services and ServiceImports that Karmada propagates",
        };
        write!(f, "the API server has the group {group}: --adopt={controller} serves {objects}")
    }
}
