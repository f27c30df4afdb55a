//! Events: what a source tells the store.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Kind, NodeFacts, Object, ObjectRef};

/// A change of objects. All sources report changes in this form. `T`: what an object was read as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectEvent<T = Object> {
    /// The object exists with this content.
    Apply(T),
    /// The object does not exist any more.
    Delete(ObjectRef),
    /// The object exists but cannot be read as its kind. The agent stops using it and reports it.
    Malformed {
        /// The object.
        object: ObjectRef,
        /// The error and its place.
        message: String,
    },
    /// The complete list of a kind. Other objects of this kind do not exist; the kind is synced.
    Relist {
        /// The kind.
        kind: Kind,
        /// Every object of this kind that can be read.
        objects: Vec<T>,
    },
}

/// Changes that belong together, and the status of the source after them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventBatch {
    /// The store applies them in this order.
    pub events: Vec<ObjectEvent>,
    /// Facts about the node. They replace the facts of the batch before. Most batches share one value.
    pub node: Arc<NodeFacts>,
    /// The status of the source. It replaces the status of the batch before. Most batches share one value.
    pub status: Arc<SourceStatus>,
}

/// The status of a source. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SourceStatus {
    /// A name for people: `manifests in /etc/mcs`.
    pub name: String,
    /// The kinds that it watches; empty for manifests.
    pub kinds: Vec<KindStatus>,
    /// The current problems.
    pub problems: Vec<SourceProblem>,
    /// Objects that were read and that `--adopt` would make the agent serve.
    #[serde(default)]
    pub adoptable: Vec<AdoptableObjects>,
    /// API groups whose objects `--adopt` would make the agent serve. They are not read.
    #[serde(default)]
    pub adoptable_groups: Vec<AdoptableGroup>,
    /// The number of objects of other kinds, which the agent ignores, by `apiVersion/kind`.
    pub skipped: BTreeMap<String, u64>,
}

impl SourceStatus {
    /// Whether it is a directory of manifests, not an API server.
    pub fn is_directory(&self) -> bool {
        self.kinds.is_empty()
    }
}

/// The status of a kind that a source watches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KindStatus {
    /// `serviceimports.multicluster.x-k8s.io`.
    pub resource: String,
    /// `v1beta1`; absent until the API server names it.
    pub version: Option<String>,
    /// Whether it was listed completely once.
    pub synced: bool,
    /// Set if the watch fails after the kind was listed: the time of the last contact, in seconds since
    /// the Unix epoch. The agent keeps using what it read.
    pub known_until: Option<u64>,
}

/// Something that a source cannot read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceProblem {
    /// For example `web.yaml, document 2, line 14`, or a resource.
    pub place: String,
    /// The error, and what the agent uses meanwhile.
    pub message: String,
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
