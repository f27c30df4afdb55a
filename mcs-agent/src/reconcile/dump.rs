use std::collections::{BTreeMap, BTreeSet};

use bytemuck::Zeroable;
use mcs_common::{
    Address, Backend, BackendState, ClusterRecord, FrontendKey, FrontendState, ServiceRecord,
    select::Tables,
};

use super::Step;
use crate::model::Capacity;

/// Everything the config maps hold.
///
/// An array may end after its last entry in use: what is past its end is zero.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Dump {
    /// `vips`.
    pub vips: BTreeSet<Address>,
    /// `frontends`.
    pub frontends: BTreeMap<FrontendKey, u32>,
    /// `states`, by index.
    pub states: Vec<FrontendState>,
    /// `slots`, by index.
    pub slots: Vec<u32>,
    /// `backends`, by id.
    pub backends: Vec<Backend>,
    /// `services`, by index.
    pub services: Vec<ServiceRecord>,
    /// `clusters`, by index.
    pub clusters: Vec<ClusterRecord>,
}

impl Dump {
    /// Whether maps of this capacity have all the places that are in use here.
    pub fn fits(&self, capacity: Capacity) -> bool {
        let frontends = capacity.frontends as usize;
        self.vips.len() <= frontends
            && self.frontends.len() <= frontends
            && [
                (self.states.len(), capacity.state_entries()),
                (self.slots.len(), capacity.slot_entries()),
                (self.backends.len(), capacity.backend_entries()),
                (self.services.len(), capacity.service_entries()),
                (self.clusters.len(), capacity.cluster_entries()),
            ]
            .into_iter()
            .all(|(used, entries)| used <= entries as usize)
    }

    /// The writes that make empty maps hold the same, at the same places, as far as these are
    /// within the capacity. Whoever restores from the copy finds what was cut.
    pub fn copy(&self, capacity: Capacity) -> Vec<Step> {
        let mut steps = Vec::new();
        steps.extend(
            used(&self.services, capacity.service_entries())
                .map(|(id, record)| Step::WriteService { id, record }),
        );
        steps.extend(
            used(&self.clusters, capacity.cluster_entries())
                .map(|(id, record)| Step::WriteCluster { id, record }),
        );
        steps.extend(
            used(&self.backends, capacity.backend_entries())
                .map(|(id, backend)| Step::WriteBackend { id, backend }),
        );
        let ids = used(&self.slots, capacity.slot_entries()).map(|(_, id)| id).collect();
        steps.push(Step::WriteSlots { block: 0, ids });
        steps.extend(
            used(&self.states, capacity.state_entries())
                .map(|(index, state)| Step::WriteState { index, state }),
        );
        let room = capacity.frontends as usize;
        steps.extend(
            self.frontends
                .iter()
                .filter(|(_, index)| **index < capacity.state_entries())
                .take(room)
                .map(|(key, index)| Step::InsertFrontend { key: *key, index: *index }),
        );
        steps.extend(self.vips.iter().take(room).map(|vip| Step::InsertVip(*vip)));
        steps
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
            Step::WriteService { id, record } => *entry(&mut self.services, id) = record,
            Step::WriteCluster { id, record } => *entry(&mut self.clusters, id) = record,
            Step::WriteBackend { id, backend } => *entry(&mut self.backends, id) = backend,
            Step::WriteSlots { block, ref ids } => {
                for (slot, &id) in (block..).zip(ids) {
                    *entry(&mut self.slots, slot) = id;
                }
            }
            Step::WriteState { index, state } => *entry(&mut self.states, index) = state,
            Step::UpdateAttributes { index, service, flags, affinity_seconds } => {
                let state = entry(&mut self.states, index);
                *state = FrontendState { service, flags, affinity_seconds, ..*state };
            }
            Step::Flip { index, extent } => entry(&mut self.states, index).extent = extent,
            Step::InsertFrontend { key, index } => {
                self.frontends.insert(key, index);
            }
            Step::InsertVip(vip) => {
                self.vips.insert(vip);
            }
            Step::RetireBackend { id } => {
                entry(&mut self.backends, id).state = BackendState::RETIRED;
            }
            Step::WaitForReaders => {}
        }
    }
}

/// The entries of an array within a capacity.
fn used<T: Copy>(array: &[T], entries: u32) -> impl Iterator<Item = (u32, T)> {
    (0..entries).zip(array.iter().copied())
}

/// The entry at `index` of an array that may end before it.
fn entry<T: Zeroable + Clone>(array: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if array.len() <= index {
        array.resize(index + 1, T::zeroed());
    }
    &mut array[index]
}

impl Tables for Dump {
    fn is_vip(&self, address: &Address) -> bool {
        self.vips.contains(address)
    }

    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        self.frontends.get(key).copied()
    }

    fn state(&self, index: u32) -> Option<FrontendState> {
        self.states.get(index as usize).copied()
    }

    fn slot(&self, index: u32) -> Option<u32> {
        self.slots.get(index as usize).copied()
    }

    fn backend(&self, id: u32) -> Option<Backend> {
        self.backends.get(id as usize).copied()
    }
}
