//! The realized state: the agent's model of the config maps.

mod queries;
mod references;
mod restore;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use bytemuck::Zeroable;
use mcs_common::{
    Address, BackendRecord, Extent, FrontendKey, FrontendState, VipMode,
    select::{Arrays as _, Tables as _},
};

pub use self::restore::{Damage, DamagedFrontend};
use super::{
    MapContents, NameMap, NameRecord, Step,
    allocations::Allocations,
    convert,
    free_list::{FreeList, one},
};
use crate::model::{Capacity, Departure};

/// What the maps hold as far as the agent knows, and which entries are free.
#[derive(Clone, Debug)]
pub struct Realized {
    capacity: Capacity,
    contents: MapContents,
    allocations: Allocations,
    /// How many slots a reader can reach.
    slots: u32,
    /// Backends active in the map that no slot names any more: the next plan keeps or retires them.
    undecided: BTreeSet<u32>,
    /// Backends kept in the map, each after the index of its frontend.
    kept: Arc<BTreeSet<(u32, u32)>>,
    /// Frontends in the map that lead nowhere. What they refer to is not in use.
    damaged: BTreeSet<FrontendKey>,
}

impl Realized {
    /// New maps, without entries.
    pub fn empty(capacity: Capacity) -> Self {
        Self::new(capacity, MapContents::default(), Allocations::new(capacity, FreeList::all_free))
    }

    fn new(capacity: Capacity, contents: MapContents, allocations: Allocations) -> Self {
        Self {
            capacity,
            contents,
            allocations,
            slots: 0,
            undecided: BTreeSet::new(),
            kept: Arc::default(),
            damaged: BTreeSet::new(),
        }
    }

    /// What the maps hold.
    pub const fn contents(&self) -> &MapContents {
        &self.contents
    }

    /// Whether the address is a VIP in the maps that is served.
    pub fn has_vip(&self, ip: IpAddr) -> bool {
        self.contents.vip(&ip.into()) == Some(VipMode::SERVED)
    }

    /// Whether the maps have the address, served or not.
    pub fn knows_vip(&self, ip: IpAddr) -> bool {
        self.contents.vips.contains_key(&Address::from(ip))
    }

    /// What the maps say of an address that was a VIP.
    pub fn departure(&self, ip: IpAddr) -> Option<Departure> {
        self.contents.vip(&ip.into()).and_then(convert::departure)
    }

    /// Every VIP in the maps that is not served any more.
    pub fn departed(&self) -> BTreeMap<IpAddr, Departure> {
        let vips = self.contents.vips.iter();
        vips.filter_map(|(vip, mode)| Some((vip.to_ip(), convert::departure(*mode)?))).collect()
    }

    /// How many slots a reader can reach, in all frontends together.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// How many backends are kept for the UDP clients that have them.
    pub fn kept_backends(&self) -> u32 {
        u32::try_from(self.kept.len()).unwrap_or(u32::MAX)
    }

    /// How much of the capacity is in use. Clusters are not counted.
    pub fn used(&self) -> Capacity {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Capacity {
            vips: count(self.contents.vips.len()),
            frontends: count(self.contents.frontends.len()),
            endpoints: self.slots.saturating_add(self.kept_backends()),
            clusters: 0,
            imports: self.allocations.names[NameMap::Services as usize].used(),
        }
    }

    /// Whether a reachable entry refers to this name.
    pub fn uses_name(&self, map: NameMap, id: u32) -> bool {
        self.allocations.names[map as usize].is_used(id)
    }

    /// The indices of the names that reachable entries refer to.
    pub fn names_used(&self, map: NameMap) -> impl ExactSizeIterator<Item = u32> {
        self.allocations.names[map as usize].all_used()
    }

    /// How many slots the frontends of each entry of `services` have.
    pub fn slots_of_services(&self) -> BTreeMap<u32, u32> {
        let mut slots = BTreeMap::new();
        let frontends = self.contents.frontends.iter();
        for (_, index) in frontends.filter(|(key, _)| !self.damaged.contains(key)) {
            let FrontendState { service, extent, .. } = self.state(*index);
            *slots.entry(service).or_default() += extent.count;
        }
        slots
    }

    /// The VIPs in the maps that have frontends, each with the index of its import in `services`.
    pub fn vip_imports(&self) -> impl Iterator<Item = (Address, u32)> {
        self.frontends().filter_map(|key| Some((key.vip, self.state(self.index(&key)?).service)))
    }

    /// The capacity of the maps.
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(super) const fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    pub(super) const fn undecided(&self) -> &BTreeSet<u32> {
        &self.undecided
    }

    /// All kept backends.
    pub(super) fn kept(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().map(|(_, id)| *id)
    }

    /// The kept backends of the frontend at `index`.
    pub(super) fn kept_of(&self, index: u32) -> impl Iterator<Item = u32> {
        self.kept.range((index, 0)..=(index, u32::MAX)).map(|(_, id)| *id)
    }

    pub(super) const fn damaged(&self) -> &BTreeSet<FrontendKey> {
        &self.damaged
    }

    /// The frontends that are not damaged.
    pub(super) fn frontends(&self) -> impl Iterator<Item = FrontendKey> {
        self.contents.frontends.keys().filter(|key| !self.damaged.contains(key)).copied()
    }

    /// The index of a frontend that is not damaged.
    pub(super) fn index(&self, key: &FrontendKey) -> Option<u32> {
        self.contents.frontend(key).filter(|_| !self.damaged.contains(key))
    }

    pub(super) fn state(&self, index: u32) -> FrontendState {
        self.contents.state(index).unwrap_or(Zeroable::zeroed())
    }

    pub(super) fn backend(&self, id: u32) -> BackendRecord {
        self.contents.backend(id).unwrap_or(Zeroable::zeroed())
    }

    /// An entry of a map of names.
    pub fn name(&self, map: NameMap, id: u32) -> NameRecord {
        self.contents.name(map, id)
    }

    /// The backend ids in an extent.
    pub(super) fn ids(&self, extent: Extent) -> impl Iterator<Item = u32> {
        extent.range().map(|slot| self.contents.slot(slot).unwrap_or_default())
    }

    /// Whether the step writes to a place that no reader can reach, and the map holds the same there.
    pub(super) fn holds(&self, step: &Step) -> bool {
        match *step {
            Step::WriteName { map, id, ref record } => self.name(map, id) == **record,
            Step::WriteBackend { id, backend } => self.backend(id) == backend,
            Step::WriteSlots { block, ref ids } => {
                ids.iter().zip(block..).all(|(id, slot)| self.contents.slot(slot) == Some(*id))
            }
            Step::WriteState { index, ref state } => self.state(index) == **state,
            _ => false,
        }
    }

    /// The realized state after these steps.
    #[must_use]
    pub fn after(&self, steps: &[Step]) -> Self {
        let mut after = self.clone();
        for step in steps {
            after.record(step);
        }
        after
    }

    /// Updates the model after a step.
    pub(super) fn record(&mut self, step: &Step) {
        match *step {
            Step::DeleteFrontend(key) => self.withdraw(&key),
            Step::InsertFrontend { key, index } => {
                if self.index(&key).is_none() {
                    self.publish(index);
                }
            }
            Step::UpdateAttributes { index, service, .. } => self.set_service(index, service),
            Step::Flip { index, extent } => self.flip(index, extent),
            Step::RetireBackend { id } => {
                if self.stop_keeping(id) || self.undecided.remove(&id) {
                    self.allocations.backends.release(one(id));
                }
            }
            Step::KeepBackend { id } => self.keep(id),
            Step::ResumeBackend { id } => {
                if self.stop_keeping(id) {
                    self.undecided.insert(id);
                }
            }
            Step::WaitForReaders => self.allocations.end_grace_period(),
            Step::DeleteVip(_)
            | Step::InsertVip(_)
            | Step::SetVipMode { .. }
            | Step::WriteName { .. }
            | Step::WriteBackend { .. }
            | Step::WriteSlots { .. }
            | Step::WriteState { .. }
            | Step::RepairHint { .. } => {}
        }
        self.contents.write(step);
    }
}
