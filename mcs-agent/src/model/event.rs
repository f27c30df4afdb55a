use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kind, NodeFacts, Object, ObjectRef};

/// One change, as every source tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectEvent {
    /// The object is now this.
    Apply(Object),
    /// The object is gone.
    Delete(ObjectRef),
    /// The object exists but cannot be read as its kind: it is withdrawn and reported.
    Malformed {
        /// Which object.
        object: ObjectRef,
        /// What is wrong, and where.
        message: String,
    },
    /// The complete list of a kind: what it does not name is gone, and the kind is synced.
    Relist {
        /// Of which kind.
        kind: Kind,
        /// Every object of that kind.
        objects: Vec<Object>,
    },
}

/// Changes that belong together, and how the source stands after them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventBatch {
    /// In order.
    pub events: Vec<ObjectEvent>,
    /// What the source knows of the node; replaces that of the batch before.
    pub node: NodeFacts,
    /// Replaces the status of the batch before.
    pub status: SourceStatus,
}

/// How a source stands. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SourceStatus {
    /// What it is, for a person: `manifests in /etc/mcs`.
    pub name: String,
    /// What it follows of an API server.
    pub kinds: Vec<KindStatus>,
    /// What it cannot read now.
    pub problems: Vec<SourceProblem>,
    /// Objects passed over since they are of no kind that the agent reads, by `apiVersion/kind`.
    pub skipped: BTreeMap<String, u64>,
}

/// How one kind stands, of those that a source follows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KindStatus {
    /// `serviceimports.multicluster.x-k8s.io`.
    pub resource: String,
    /// `v1beta1`; absent before it was found.
    pub version: Option<String>,
    /// Whether it was read completely once.
    pub synced: bool,
    /// Up to when it is known, in seconds since the Unix epoch, if it was read and cannot be
    /// followed any more: what was read stays in force.
    pub known_until: Option<u64>,
}

/// Something a source cannot read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceProblem {
    /// Where: `web.yaml, document 2, line 14`.
    pub place: String,
    /// What is wrong and what holds meanwhile.
    pub message: String,
}
