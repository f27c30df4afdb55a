//! Where objects are read, and which.

use std::{collections::BTreeSet, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::objects::MCS_GROUP;
use crate::core::model::Sections;

/// Where an agent reads objects, so that another process can read them too. Part of `status -o json`: fields are added,
/// never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadFrom {
    /// `--kubeconfig`; without it, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--import-group`.
    pub import_group: String,
    /// `--import-selector`.
    pub import_selector: Option<String>,
    /// What the flags of features say of it.
    #[serde(flatten)]
    pub sections: Sections,
}

impl Default for ReadFrom {
    /// The objects of KEP-1645, with the pod's service account.
    fn default() -> Self {
        let import_group = MCS_GROUP.to_owned();
        let sections = Sections::default();
        Self { kubeconfig: None, context: None, import_group, import_selector: None, sections }
    }
}

/// Where a source reads objects, and what else an API server is asked for: nothing by default.
#[derive(Clone, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what is watched and what not")]
pub struct SourceOptions {
    /// Where it reads.
    pub from: ReadFrom,
    /// The Node whose zone and pod ranges are watched.
    pub node: Option<String>,
    /// Whether its zone is needed. If not, the right to read Nodes may be missing.
    pub zone: bool,
    /// Whether the ClusterProperty with the cluster's id is watched (KEP-2149).
    pub cluster_id: bool,
    /// Whether the ServiceCIDRs are watched. The cluster need not have them, and the right may be missing.
    pub service_ranges: bool,
    /// Whether the ClusterProperty with the ranges of ClusterSetIPs is watched. The right may be missing. Controllers that
    /// do not follow KEP-1645 have ranges of their own.
    pub vip_ranges: bool,
    /// The names of the imports whose slices are read, and no others, at once; `None`: all, after a random delay.
    pub only: Option<BTreeSet<String>>,
}
