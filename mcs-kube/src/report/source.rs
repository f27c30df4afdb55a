//! What a source has read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Sections;

/// The status of a source. Part of `mcs-agent status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SourceStatus {
    /// A name for people: `manifests in /etc/mcs`.
    pub name: String,
    /// The kinds that it watches; empty for manifests.
    pub kinds: Vec<KindStatus>,
    /// The current problems.
    pub problems: Vec<SourceProblem>,
    /// The number of objects of other kinds, which the agent ignores, by `apiVersion/kind`.
    pub skipped: BTreeMap<String, u64>,
    /// The name of all that it reads, in metrics, if it watches no kinds.
    #[serde(skip)]
    pub whole: &'static str,
    /// What a filter says of the objects.
    #[serde(flatten)]
    pub sections: Sections,
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
    /// For example `web.yaml, document 2`, or a resource.
    pub place: String,
    /// The error, and what the agent uses meanwhile.
    pub message: String,
}
