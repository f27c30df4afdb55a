//! Where the entries of a changed frontend go.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::once,
};

use super::{Shortage, frontend_change::FrontendChange};
use crate::reconcile::{NameMap, NameRecord, Realized, allocations::Allocations};

/// Free entries for everything that a change adds.
pub(super) struct Placement<'a> {
    pub(super) index: u32,
    pub(super) service: u32,
    /// The first slot of the block.
    pub(super) block: u32,
    /// One for each added backend, in order.
    pub(super) ids: Vec<u32>,
    /// The entries of the added backends' clusters.
    pub(super) clusters: BTreeMap<&'a str, u32>,
}

impl<'a> Placement<'a> {
    /// Finds free entries, and takes none. `allocations` are the allocations of `realized`, now or after a wait.
    pub(super) fn find(
        realized: &Realized,
        allocations: &Allocations,
        change: &FrontendChange<'a>,
    ) -> Result<Self, Shortage> {
        let index =
            change.index.or_else(|| allocations.indices.find(1)).ok_or(Shortage::Frontends)?;
        let service = if change.changes_attributes(realized) {
            let name = NameRecord::of_import(&change.frontend.import);
            let mut ids = allocations.names[NameMap::Services as usize].assign(once(name));
            ids.next().flatten().ok_or(Shortage::Services)?
        } else {
            realized.state(index).service
        };
        let slots = if change.changes_backends() { change.count() } else { 0 };
        let block = allocations.blocks.find(slots).ok_or(Shortage::Slots)?;
        let added = change.added().count();
        let ids: Vec<u32> = allocations.backends.each().take(added).collect();
        if ids.len() < added {
            return Err(Shortage::Endpoints);
        }
        let clusters = change.added().map(|backend| &*backend.cluster);
        let clusters: BTreeSet<&str> = clusters.filter(|cluster| !cluster.is_empty()).collect();
        let names = clusters.iter().map(|cluster| NameRecord::of_cluster(cluster));
        let cluster_ids = allocations.names[NameMap::Clusters as usize].assign(names);
        let clusters = clusters.iter().zip(cluster_ids).map(|(name, id)| Some((*name, id?)));
        let clusters = clusters.collect::<Option<_>>().ok_or(Shortage::Clusters)?;
        Ok(Self { index, service, block, ids, clusters })
    }
}
