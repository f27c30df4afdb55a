//! The realized state: the agent's model of the config maps.

mod queries;
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
    allocations::{Allocations, FreeList, one},
    contents::{self, frontend_id},
};
use crate::core::model::{Capacity, Departure, FrontendId, Protocol};

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
        self.contents.vip(&ip.into()).and_then(contents::departure)
    }

    /// Every VIP in the maps that is not served any more.
    pub fn departed(&self) -> BTreeMap<IpAddr, Departure> {
        let vips = self.contents.vips.iter();
        vips.filter_map(|(vip, mode)| Some((vip.to_ip(), contents::departure(*mode)?))).collect()
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

    /// How many names reachable entries refer to.
    pub fn name_count(&self, map: NameMap) -> usize {
        self.allocations.names[map as usize].used() as usize
    }

    /// The indices of the names that reachable entries refer to.
    pub fn names_used(&self, map: NameMap) -> impl Iterator<Item = u32> {
        self.allocations.names[map as usize].all_used()
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

    /// The UDP frontend that a backend in the maps belongs to, if the backend may be kept.
    pub(super) fn udp_frontend_of(&self, id: u32) -> Option<FrontendId> {
        let BackendRecord { frontend, cluster, .. } = self.backend(id);
        let key = self.state(frontend).key;
        let is_intact =
            self.index(&key) == Some(frontend) && cluster < self.capacity.cluster_entries();
        frontend_id(&key).filter(|id| is_intact && id.protocol == Protocol::Udp)
    }

    /// The frontend that a backend in the maps serves or served last.
    pub fn frontend_of(&self, backend: u32) -> FrontendKey {
        self.state(self.backend(backend).frontend).key
    }

    /// The frontend that refuses now and serves after a step.
    pub fn serves_again(&self, step: &Step) -> Option<FrontendKey> {
        let Step::Flip { index, extent } = step else { return None };
        let state = self.state(*index);
        (state.extent.count == 0 && extent.count > 0).then_some(state.key)
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

/// Counts references between entries: an entry is in use while a reader can reach it.
impl Realized {
    /// Marks everything that the state at `index` refers to as used: a reader can reach it from now on.
    fn publish(&mut self, index: u32) {
        let state = self.state(index);
        self.allocations.indices.take(one(index));
        self.acquire_name(NameMap::Services, state.service, 1);
        self.allocations.blocks.take(state.extent);
        self.slots += state.extent.count;
        let mut ids: Vec<u32> = self.ids(state.extent).collect();
        ids.sort_unstable();
        ids.dedup();
        self.publish_backends(&ids);
    }

    /// Releases everything that the frontend refers to: no reader finds it any more.
    fn withdraw(&mut self, key: &FrontendKey) {
        if let Some(index) = self.index(key) {
            let FrontendState { extent, service, .. } = self.state(index);
            for id in self.ids(extent).collect::<BTreeSet<_>>() {
                self.drop_backend(id);
            }
            for id in self.kept_of(index).collect::<Vec<_>>() {
                self.stop_keeping(id);
                self.undecided.insert(id);
            }
            self.allocations.blocks.release(extent);
            self.slots -= extent.count;
            self.release_name(NameMap::Services, service);
            self.allocations.indices.release(one(index));
        }
        self.damaged.remove(key);
    }

    /// A reader finds this service at `index` from now on.
    fn set_service(&mut self, index: u32, service: u32) {
        let former = self.state(index).service;
        self.acquire_name(NameMap::Services, service, 1);
        self.release_name(NameMap::Services, former);
    }

    /// A reader gets from `index` to `extent` from now on.
    fn flip(&mut self, index: u32, extent: Extent) {
        let former = self.state(index).extent;
        self.allocations.blocks.take(extent);
        let [before, after] = [former, extent].map(|extent| self.ids(extent).collect());
        let (before, after): (BTreeSet<u32>, BTreeSet<u32>) = (before, after);
        self.publish_backends(&Vec::from_iter(&after - &before));
        for id in before.difference(&after) {
            self.drop_backend(*id);
        }
        self.allocations.blocks.release(former);
        self.slots = self.slots + extent.count - former.count;
    }

    /// Keeps this backend: its clients stay with it, though no slot names it.
    fn keep(&mut self, id: u32) {
        let frontend = self.backend(id).frontend;
        self.undecided.remove(&id);
        if Arc::make_mut(&mut self.kept).insert((frontend, id)) {
            self.take_backends(&[id]);
        }
    }

    /// Keeps the backend no longer; its caller decides what becomes of it. Returns whether the backend was kept.
    fn stop_keeping(&mut self, id: u32) -> bool {
        let kept = (self.backend(id).frontend, id);
        let was_kept = self.kept.contains(&kept);
        if was_kept {
            Arc::make_mut(&mut self.kept).remove(&kept);
            self.release_cluster(id);
        }
        was_kept
    }

    /// A reader can reach these backends too. The ids are sorted.
    fn publish_backends(&mut self, ids: &[u32]) {
        if !self.undecided.is_empty() {
            self.undecided.retain(|id| ids.binary_search(id).is_err());
        }
        self.take_backends(ids);
    }

    /// The ids are sorted. The ids of a new frontend are mostly consecutive, and its backends are of few clusters.
    fn take_backends(&mut self, ids: &[u32]) {
        for run in ids.chunk_by(|one, next| one + 1 == *next) {
            self.allocations.backends.take(Extent { block: run[0], count: count(run) });
        }
        let clusters: Vec<u32> = ids.iter().map(|id| self.backend(*id).cluster).collect();
        for run in clusters.chunk_by(|one, next| one == next) {
            self.acquire_name(NameMap::Clusters, run[0], count(run));
        }
    }

    fn drop_backend(&mut self, id: u32) {
        self.undecided.insert(id);
        self.release_cluster(id);
    }

    fn release_cluster(&mut self, id: u32) {
        self.release_name(NameMap::Clusters, self.backend(id).cluster);
    }

    fn acquire_name(&mut self, map: NameMap, id: u32, times: u32) {
        let name = self.name(map, id);
        self.allocations.names[map as usize].acquire(id, &name, times);
    }

    fn release_name(&mut self, map: NameMap, id: u32) {
        let name = self.name(map, id);
        self.allocations.names[map as usize].release(id, &name);
    }
}

fn count(ids: &[u32]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}
