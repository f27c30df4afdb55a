//! A copy of the config maps in memory.

use bytemuck::Zeroable;
use mcs_common::{
    Address, AddressKinds, BackendRecord, BackendRef, BackendState, FrontendKey, FrontendState,
    VipMode,
    select::{self, Arrays, Tables},
};

use super::{NameMap, NameRecord, OfNameMaps, Step, pages::Pages, shared_map::SharedMap};
use crate::core::model::Capacity;

/// Everything the config maps hold.
///
/// An array may end after its last entry in use: what is past its end is zero. Clones share their
/// pages until one of them is written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MapContents {
    /// `vips`: the mode of each address.
    pub vips: SharedMap<Address, u32>,
    /// `frontends`.
    pub frontends: SharedMap<FrontendKey, u32>,
    /// `states`, by index.
    pub states: Pages<FrontendState>,
    /// `slots`, by index.
    pub slots: Pages<u32>,
    /// `backends`, by id.
    pub backends: Pages<BackendRecord>,
    /// The names, by index.
    pub names: OfNameMaps<Pages<NameRecord>>,
}

impl MapContents {
    /// Whether maps of this capacity have all the places that are in use here.
    pub fn fits(&self, capacity: Capacity) -> bool {
        let names = NameMap::ALL.map(|map| (self.names[map as usize].len(), map.entries(capacity)));
        self.vips.len() <= capacity.vips as usize
            && self.frontends.len() <= capacity.frontends as usize
            && [
                (self.states.len(), capacity.state_entries()),
                (self.slots.len(), capacity.slot_entries()),
                (self.backends.len(), capacity.backend_entries()),
            ]
            .into_iter()
            .chain(names)
            .all(|(used, entries)| used <= entries as usize)
    }

    /// The writes that give empty maps the same entries at the same places, without the entries
    /// that are out of the capacity. [`super::Realized::restore`] finds the frontends that this damages.
    pub fn copy(&self, capacity: Capacity) -> impl Iterator<Item = Step> {
        let names = NameMap::ALL.into_iter().flat_map(move |map| {
            used(&self.names[map as usize], map.entries(capacity))
                .map(move |(id, record)| Step::WriteName { map, id, record: record.into() })
        });
        let backends = used(&self.backends, capacity.backend_entries())
            .map(|(id, backend)| Step::WriteBackend { id, backend });
        let ids = used(&self.slots, capacity.slot_entries()).map(|(_, id)| id).collect();
        let slots = Step::WriteSlots { block: 0, ids };
        let states = used(&self.states, capacity.state_entries())
            .map(|(index, state)| Step::WriteState { index, state: state.into() });
        let frontends = self
            .frontends
            .iter()
            .filter(move |(_, index)| **index < capacity.state_entries())
            .take(capacity.frontends as usize)
            .map(|(key, index)| Step::InsertFrontend { key: *key, index: *index });
        let served = self.vips_of_mode(|mode| mode == VipMode::SERVED);
        let departed = self.vips_of_mode(|mode| mode != VipMode::SERVED);
        let vips = served.map(|(vip, _)| Step::InsertVip(vip));
        let vips = vips.chain(departed.map(|(vip, mode)| Step::SetVipMode { vip, mode }));
        let arrays = names.chain(backends).chain([slots]).chain(states);
        arrays.chain(frontends).chain(vips.take(capacity.vips as usize))
    }

    /// The VIPs whose mode is one of these.
    pub fn vips_of_mode(
        &self,
        is_one: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = (Address, u32)> {
        let vips = self.vips.iter().map(|(vip, mode)| (*vip, *mode));
        vips.filter(move |(_, mode)| is_one(*mode))
    }

    /// An entry of a map of names. Entry 0, and any that was never written, is no name.
    pub fn name(&self, map: NameMap, id: u32) -> NameRecord {
        self.names[map as usize].get(id as usize).copied().unwrap_or(Zeroable::zeroed())
    }

    /// The backend that a UDP client remembers, if it still serves the frontend.
    pub fn remembered(&self, frontend: u32, chosen: BackendRef) -> Option<BackendRecord> {
        select::recall(self, frontend, chosen).map(|choice| choice.backend)
    }

    /// Does to this copy what the step does to the maps.
    pub fn write(&mut self, step: &Step) {
        match *step {
            Step::DeleteVip(vip) => {
                self.vips.remove(&vip);
            }
            Step::DeleteFrontend(key) => {
                self.frontends.remove(&key);
            }
            Step::WriteName { map, id, ref record } => {
                *self.names[map as usize].entry(id as usize) = **record;
            }
            Step::WriteBackend { id, backend } => *self.backends.entry(id as usize) = backend,
            Step::WriteSlots { block, ref ids } => {
                for (slot, &id) in (block..).zip(ids) {
                    *self.slots.entry(slot as usize) = id;
                }
            }
            Step::WriteState { index, ref state } => *self.states.entry(index as usize) = **state,
            Step::UpdateAttributes { index, service, flags, affinity_seconds } => {
                let state = self.states.entry(index as usize);
                *state = FrontendState { service, flags, affinity_seconds, ..*state };
            }
            Step::Flip { index, extent } => self.states.entry(index as usize).extent = extent,
            Step::InsertFrontend { key, index } => {
                self.frontends.insert(key, index);
            }
            Step::InsertVip(vip) => {
                self.vips.insert(vip, VipMode::SERVED);
            }
            Step::SetVipMode { vip, mode } => {
                self.vips.insert(vip, mode);
            }
            Step::RetireBackend { id } => self.set_state(id, BackendState::RETIRED),
            Step::KeepBackend { id } => self.set_state(id, BackendState::KEPT),
            Step::ResumeBackend { id } => self.set_state(id, BackendState::ACTIVE),
            Step::RepairHint { .. } | Step::WaitForReaders => {}
        }
    }

    fn set_state(&mut self, id: u32, state: u8) {
        self.backends.entry(id as usize).state = state;
    }
}

/// The entries of an array within a capacity.
fn used<T: Copy + Zeroable>(array: &Pages<T>, entries: u32) -> impl Iterator<Item = (u32, T)> {
    (0..entries).zip(array.iter().copied())
}

impl Tables for MapContents {
    /// A copy has no hints.
    fn kinds_of(&self, _: &Address) -> AddressKinds {
        AddressKinds::ANY
    }

    fn vip(&self, address: &Address) -> Option<u32> {
        self.vips.get(address).copied()
    }

    fn are_released(&self) -> bool {
        false
    }

    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        self.frontends.get(key).copied()
    }
}

impl Arrays for MapContents {
    fn state(&self, index: u32) -> Option<FrontendState> {
        self.states.get(index as usize).copied()
    }

    fn slot(&self, index: u32) -> Option<u32> {
        self.slots.get(index as usize).copied()
    }

    fn backend(&self, id: u32) -> Option<BackendRecord> {
        self.backends.get(id as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::core::tables::{convert::frontend_key, fixtures::id};

    type Write = fn(&mut MapContents);

    fn one_more_name(all: &mut MapContents, map: NameMap) {
        let names = &mut all.names[map as usize];
        names.entry(names.len());
    }

    #[test]
    fn each_map_has_as_many_places_as_its_capacity_says() {
        let capacity = Capacity { vips: 3, frontends: 2, endpoints: 4, clusters: 1, imports: 2 };
        let one_more: [(Write, u32); 7] = [
            (
                |all| {
                    let vip = IpAddr::from([10, 0, 0, u8::try_from(all.vips.len()).unwrap()]);
                    all.vips.insert(vip.into(), VipMode::SERVED);
                },
                3,
            ),
            (
                |all| {
                    let port = u16::try_from(all.frontends.len()).unwrap();
                    all.frontends.insert(frontend_key(&id("10.0.0.1", port)), 1);
                },
                2,
            ),
            (|all| _ = all.states.entry(all.states.len()), capacity.state_entries()),
            (|all| _ = all.slots.entry(all.slots.len()), capacity.slot_entries()),
            (|all| _ = all.backends.entry(all.backends.len()), capacity.backend_entries()),
            (|all| one_more_name(all, NameMap::Services), capacity.service_entries()),
            (|all| one_more_name(all, NameMap::Clusters), capacity.cluster_entries()),
        ];
        for (nth, (write, places)) in one_more.into_iter().enumerate() {
            let mut all = MapContents::default();
            for _ in 0..places {
                assert!(all.fits(capacity), "{nth}");
                write(&mut all);
            }
            assert!(all.fits(capacity), "{nth}");
            write(&mut all);
            assert!(!all.fits(capacity), "{nth}");
        }
    }
}
