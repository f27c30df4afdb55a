mod doubt;
mod references;
mod restore;
mod served;

use std::collections::BTreeSet;

use bytemuck::Zeroable;
use mcs_common::{
    Address, BackendRecord, ClusterRecord, Extent, FrontendKey, FrontendState, ServiceRecord,
    select::Tables,
};

use self::doubt::Doubt;
pub use self::restore::{Damage, Finding};
use super::{
    Dump, Step,
    extents::{Extents, one},
    ledger::Ledger,
};
use crate::model::Capacity;

/// What the maps hold, kept up step by step, and what of it is free.
#[derive(Clone, Debug)]
pub struct Realized {
    capacity: Capacity,
    tables: Dump,
    ledger: Ledger,
    /// How many backends a reader can reach.
    endpoints: u32,
    /// Backends active in the map that no frontend refers to any more.
    stale: BTreeSet<u32>,
    /// Frontends in the map that are not fit for a reader. What they refer to is not in use.
    damaged: BTreeSet<FrontendKey>,
    doubt: Doubt,
}

impl Realized {
    /// Maps just created: nothing in them.
    pub fn empty(capacity: Capacity) -> Self {
        Self::new(capacity, Dump::default(), Ledger::new(capacity, Extents::free))
    }

    fn new(capacity: Capacity, tables: Dump, ledger: Ledger) -> Self {
        Self {
            capacity,
            tables,
            ledger,
            endpoints: 0,
            stale: BTreeSet::new(),
            damaged: BTreeSet::new(),
            doubt: Doubt::default(),
        }
    }

    /// What the maps hold, as far as is known.
    pub const fn tables(&self) -> &Dump {
        &self.tables
    }

    /// How many backends a reader can reach, in all frontends together.
    pub const fn endpoints(&self) -> u32 {
        self.endpoints
    }

    /// What is in use of the capacity.
    pub fn used(&self) -> Capacity {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Capacity {
            frontends: count(self.tables.vips.len().max(self.tables.frontends.len())),
            endpoints: self.endpoints,
            clusters: 0,
        }
    }

    /// What there is room for.
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) const fn stale(&self) -> &BTreeSet<u32> {
        &self.stale
    }

    pub(super) const fn damaged(&self) -> &BTreeSet<FrontendKey> {
        &self.damaged
    }

    /// The frontends that are fit for a reader.
    pub(super) fn frontends(&self) -> impl Iterator<Item = FrontendKey> {
        self.tables.frontends.keys().filter(|key| !self.damaged.contains(key)).copied()
    }

    /// The index of a frontend that is fit for a reader.
    pub(super) fn index(&self, key: &FrontendKey) -> Option<u32> {
        self.tables.frontend(key).filter(|_| !self.damaged.contains(key))
    }

    /// The frontends of which a failed write has left open how they stand in the maps.
    pub(super) const fn doubted_frontends(&self) -> &BTreeSet<FrontendKey> {
        &self.doubt.frontends
    }

    /// The VIPs of which a failed write has left open whether they are in the map.
    pub(super) const fn doubted_vips(&self) -> &BTreeSet<Address> {
        &self.doubt.vips
    }

    pub(super) fn state(&self, index: u32) -> FrontendState {
        self.tables.state(index).unwrap_or(Zeroable::zeroed())
    }

    pub(super) fn backend(&self, id: u32) -> BackendRecord {
        self.tables.backend(id).unwrap_or(Zeroable::zeroed())
    }

    pub(super) fn service(&self, id: u32) -> ServiceRecord {
        self.tables.services.get(id as usize).copied().unwrap_or(Zeroable::zeroed())
    }

    pub(super) fn cluster(&self, id: u32) -> ClusterRecord {
        self.tables.clusters.get(id as usize).copied().unwrap_or(Zeroable::zeroed())
    }

    /// The backend ids in an extent.
    pub(super) fn ids(&self, extent: Extent) -> impl Iterator<Item = u32> {
        extent.range().map(|slot| self.tables.slot(slot).unwrap_or_default())
    }

    /// Whether the step writes what no reader can reach, and that stands there already.
    pub(super) fn holds(&self, step: &Step) -> bool {
        match *step {
            Step::WriteService { id, ref record } => self.service(id) == **record,
            Step::WriteCluster { id, ref record } => self.cluster(id) == **record,
            Step::WriteBackend { id, backend } => self.backend(id) == backend,
            Step::WriteSlots { block, ref ids } => {
                ids.iter().zip(block..).all(|(id, slot)| self.tables.slot(slot) == Some(*id))
            }
            Step::WriteState { index, ref state } => self.state(index) == **state,
            _ => false,
        }
    }

    /// Takes note that a step has succeeded.
    pub(super) fn advance(&mut self, step: &Step) {
        match *step {
            Step::DeleteVip(vip) | Step::InsertVip(vip) => {
                self.doubt.vips.remove(&vip);
            }
            Step::DeleteFrontend(key) => self.withdraw(&key),
            Step::InsertFrontend { key, index } => {
                self.doubt.frontends.remove(&key);
                if self.index(&key).is_none() {
                    self.adopt(index);
                }
            }
            Step::UpdateAttributes { index, service, .. } => self.refer(index, service),
            Step::Flip { index, extent } => {
                self.reach(index, extent);
                self.leave_all_but(index, extent);
            }
            Step::RetireBackend { id } => {
                if self.stale.remove(&id) {
                    self.ledger.backends.release(one(id));
                }
            }
            Step::WaitForReaders => self.ledger.settle(),
            Step::WriteService { .. }
            | Step::WriteCluster { .. }
            | Step::WriteBackend { .. }
            | Step::WriteSlots { .. }
            | Step::WriteState { .. } => {}
        }
        self.tables.write(step);
    }
}
