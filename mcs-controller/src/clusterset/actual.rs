//! What this cluster has of one service.

use std::{collections::BTreeMap, sync::Arc};

use super::{Addresses, ClusterId, Condition, Import, ImportStatus, IpFamily, ServicePort, Stamp};

/// The objects of one service in this cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Actual {
    /// The ServiceImport.
    pub import: Option<ActualImport>,
    /// The slices that this controller wrote, by `metadata.name`.
    pub slices: BTreeMap<Arc<str>, ActualSlice>,
    /// The Service that has the name of the derived one.
    pub derived: Option<ActualDerived>,
    /// `status.conditions` of the ServiceExport, without conditions of other types; absent if this cluster has
    /// no ServiceExport.
    pub export_conditions: Option<Vec<Condition>>,
}

/// A ServiceImport of this cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActualImport {
    /// Who writes it.
    pub owner: Owner,
    /// Its content. Of labels and annotations, only those that this controller applied: others may add theirs.
    pub import: Import,
    /// Its status.
    pub status: ImportStatus,
}

/// Who writes a ServiceImport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This controller.
    Us,
    /// Another controller or a person.
    Other,
}

/// A slice that this controller wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActualSlice {
    /// The cluster that its endpoints run in.
    pub cluster: ClusterId,
    /// [`ImportedSlice::fingerprint`](super::ImportedSlice::fingerprint) of its content.
    pub fingerprint: u64,
    /// `addressType`, which nobody can change.
    pub family: IpFamily,
    /// When the slice that it is a copy of was written to the mailbox.
    pub stamp: Stamp,
    /// Those of its endpoints.
    pub addresses: Addresses,
}

/// The Service of this cluster that has the name of a derived one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActualDerived {
    /// Who writes it.
    pub owner: Owner,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// Whether it has the labels that keep kube-proxy away, and no selector.
    pub is_ours_alone: bool,
    /// `metadata.uid`.
    pub uid: Arc<str>,
}

impl ActualDerived {
    /// Whether this controller wrote it.
    pub fn is_ours(&self) -> bool {
        self.owner == Owner::Us
    }
}
