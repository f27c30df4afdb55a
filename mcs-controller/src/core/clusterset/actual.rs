//! The objects of one service in this cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Addresses, ClusterId, Condition, Import, ImportStatus, IpFamily, ServicePort, Stamp};

/// The objects of one service in this cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Actual {
    /// The ServiceImport.
    pub import: Option<ActualImport>,
    /// The slices that this controller wrote, by `metadata.name`.
    pub slices: BTreeMap<Arc<str>, ActualSlice>,
    /// The clusters of the slices that others wrote for the import. `None`: a slice names no cluster.
    pub others: BTreeSet<Option<ClusterId>>,
    /// Whether Services with slices have all addresses of the import.
    pub has_services: bool,
    /// The Service with the name of the derived Service, whoever wrote it.
    pub derived: Option<ActualDerived>,
    /// `status.conditions` of the ServiceExport, without conditions of other types; absent if this cluster has
    /// no ServiceExport.
    pub export_conditions: Option<Vec<Condition>>,
}

impl Actual {
    /// Whether clients of the import do without this controller's slices of a cluster: others have written slices of that
    /// cluster, or slices that name no cluster, or dataplanes leave the addresses to Services.
    pub fn has_replaced(&self, cluster: &ClusterId) -> bool {
        let is_unnamed = self.others.iter().all(Option::is_none) && !self.others.is_empty();
        self.has_services || is_unnamed || self.others.contains(&Some(cluster.clone()))
    }
}

/// A ServiceImport of this cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActualImport {
    /// Who writes it.
    pub owner: Owner,
    /// Its content. Only labels and annotations that this controller applied count: others may add theirs.
    pub import: Import,
    /// Its status.
    pub status: ImportStatus,
    /// Whether it is a controller's record of a service, which no agent serves.
    pub is_record: bool,
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
    /// When the original was written to the mailbox.
    pub stamp: Stamp,
    /// The addresses of its endpoints.
    pub addresses: Addresses,
}

/// The Service of this cluster with the name of a derived Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActualDerived {
    /// Who writes it.
    pub owner: Owner,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// Whether it has no selector, and has the labels that keep kube-proxy away.
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
