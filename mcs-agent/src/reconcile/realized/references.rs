//! Counts references between entries: an entry is in use while a reader can reach it.

use std::{collections::BTreeSet, sync::Arc};

use mcs_common::{Extent, FrontendKey, FrontendState};

use super::Realized;
use crate::reconcile::{NameMap, free_list::one};

impl Realized {
    /// Marks everything that the state at `index` refers to as used: a reader can reach it from now on.
    pub(super) fn publish(&mut self, index: u32) {
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
    pub(super) fn withdraw(&mut self, key: &FrontendKey) {
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
    pub(super) fn set_service(&mut self, index: u32, service: u32) {
        let former = self.state(index).service;
        self.acquire_name(NameMap::Services, service, 1);
        self.release_name(NameMap::Services, former);
    }

    /// A reader gets from `index` to `extent` from now on.
    pub(super) fn flip(&mut self, index: u32, extent: Extent) {
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
    pub(super) fn keep(&mut self, id: u32) {
        let frontend = self.backend(id).frontend;
        self.undecided.remove(&id);
        if Arc::make_mut(&mut self.kept).insert((frontend, id)) {
            self.take_backends(&[id]);
        }
    }

    /// Keeps the backend no longer; its caller decides what becomes of it. Returns whether the backend was kept.
    pub(super) fn stop_keeping(&mut self, id: u32) -> bool {
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
