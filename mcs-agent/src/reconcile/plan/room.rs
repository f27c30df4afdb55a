use std::collections::{BTreeMap, BTreeSet};

use super::{Shortage, target::Target};
use crate::reconcile::{
    Realized,
    convert::{cluster_record, service_record},
    ledger::{ClusterName, Ledger},
};

/// Where a target can be written.
pub(super) struct Room {
    pub(super) index: u32,
    pub(super) service: u32,
    /// The first slot of the block.
    pub(super) block: u32,
    /// For the backends added, in order.
    pub(super) ids: Vec<u32>,
    /// For the clusters of the backends added.
    pub(super) clusters: BTreeMap<ClusterName, u32>,
}

impl Room {
    /// Finds room among what is free, and takes nothing. `ledger` is that of `realized`, now or
    /// after a wait.
    pub(super) fn find(
        realized: &Realized,
        ledger: &Ledger,
        target: &Target<'_>,
    ) -> Result<Self, Shortage> {
        let index = target.index.or_else(|| ledger.indices.find(1)).ok_or(Shortage::Frontends)?;
        let service = if target.changes_attributes(realized) {
            let service = service_record(&target.frontend.import);
            ledger
                .services
                .assign(BTreeSet::from([[service.namespace, service.name]]))
                .and_then(|ids| ids.into_values().next())
                .ok_or(Shortage::Services)?
        } else {
            realized.state(index).service
        };
        let slots = if target.changes_backends() { target.count() } else { 0 };
        let block = ledger.blocks.find(slots).ok_or(Shortage::Slots)?;
        let added = target.added().count();
        let ids: Vec<u32> = ledger.backends.each().take(added).collect();
        if ids.len() < added {
            return Err(Shortage::Endpoints);
        }
        let clusters = target
            .added()
            .filter(|backend| !backend.cluster.is_empty())
            .map(|backend| cluster_record(&backend.cluster).name)
            .collect();
        let clusters = ledger.clusters.assign(clusters).ok_or(Shortage::Clusters)?;
        Ok(Self { index, service, block, ids, clusters })
    }
}
