//! The multi-cluster controllers whose objects the agent can adopt.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A multi-cluster controller whose objects the agent serves with `--adopt`: the word that it has there. They lack the
/// labels of KEP-1645, or have another API group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Controller(&'static str);

impl Controller {
    /// The controller with this word.
    pub(crate) const fn new(word: &'static str) -> Self {
        Self(word)
    }
}

impl fmt::Display for Controller {
    /// The word of `--adopt`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The Service that a controller has made for an import, by a convention of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adoptable {
    /// The controller.
    pub controller: Controller,
    /// The Service's name, in the namespace of the import.
    pub service: String,
    /// Set if the controller can export the addresses of Services instead of pods, which its own gateways alone lead to:
    /// the setting that makes it export those of pods.
    pub pod_setting: Option<&'static str>,
    /// Whether `--adopt` names the controller.
    pub is_adopted: bool,
}

/// Objects of a controller that `--adopt` would make the agent serve. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptableObjects {
    /// The word of `--adopt`.
    pub controller: String,
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
    pub controller: String,
    /// The group.
    pub group: String,
}
