//! Counts references between entries: an entry is in use while a reader can reach it.

use std::{collections::BTreeSet, sync::Arc};

use mcs_common::{Extent, FrontendKey};

use super::Realized;
use crate::reconcile::{
    allocations::{ClusterName, ServiceName},
    free_list::one,
};

impl Realized {
    /// Marks everything that the state at `index` refers to as used: a reader can reach it from now on.
    pub(super) fn adopt(&mut self, index: u32) {
        let state = self.state(index);
        self.allocations.indices.take(one(index));
        self.allocations.services.acquire(state.service, &self.service_name(state.service), 1);
        self.allocations.blocks.take(state.extent);
        let mut ids: Vec<u32> = self.ids(state.extent).collect();
        ids.sort_unstable();
        ids.dedup();
        self.adopt_backends(&ids);
    }

    /// Releases everything that the frontend refers to: no reader finds it any more.
    pub(super) fn withdraw(&mut self, key: &FrontendKey) {
        self.unconfirmed.frontends.remove(key);
        if let Some(index) = self.index(key) {
            for id in self.reachable(index) {
                self.drop_backend(id);
            }
            for id in self.kept_of(index).collect::<Vec<_>>() {
                self.stop_keeping(id);
                self.undecided.insert(id);
            }
            for extent in self.extents(index) {
                self.allocations.blocks.release(extent);
            }
            self.unconfirmed.extents.remove(&index);
            for service in self.services(index) {
                self.allocations.services.release(service, &self.service_name(service));
            }
            self.unconfirmed.services.remove(&index);
            self.allocations.indices.release(one(index));
        }
        self.damaged.remove(key);
    }

    /// A reader can find this service at `index` too, besides those it already can.
    pub(super) fn refer(&mut self, index: u32, service: u32) {
        if !self.services(index).contains(&service) {
            self.allocations.services.acquire(service, &self.service_name(service), 1);
        }
    }

    /// A reader can find this service at `index` only.
    pub(super) fn refer_only(&mut self, index: u32, service: u32) {
        self.refer(index, service);
        for former in self.services(index) {
            if former != service {
                self.allocations.services.release(former, &self.service_name(former));
            }
        }
        self.unconfirmed.services.remove(&index);
    }

    /// The services that a reader may find at `index`.
    fn services(&self, index: u32) -> BTreeSet<u32> {
        let mut services = self.unconfirmed.services.get(&index).cloned().unwrap_or_default();
        services.insert(self.state(index).service);
        services
    }

    /// A reader can get from `index` to `extent` too, besides the extents it already can.
    pub(super) fn reach(&mut self, index: u32, extent: Extent) {
        if self.extents(index).contains(&extent) {
            return;
        }
        self.allocations.blocks.take(extent);
        let reachable = self.reachable(index);
        let added: BTreeSet<u32> = self.ids(extent).filter(|id| !reachable.contains(id)).collect();
        self.adopt_backends(&Vec::from_iter(added));
    }

    /// A reader can get from `index` to `extent` only.
    pub(super) fn leave_all_but(&mut self, index: u32, extent: Extent) {
        let kept: BTreeSet<u32> = self.ids(extent).collect();
        for id in self.reachable(index).difference(&kept) {
            self.drop_backend(*id);
        }
        for former in self.extents(index) {
            if former != extent {
                self.allocations.blocks.release(former);
            }
        }
        self.unconfirmed.extents.remove(&index);
    }

    /// The extents that a reader may find at `index`.
    fn extents(&self, index: u32) -> BTreeSet<Extent> {
        let mut extents = self.unconfirmed.extents.get(&index).cloned().unwrap_or_default();
        extents.insert(self.state(index).extent);
        extents
    }

    /// The backends that a reader may find from `index`.
    fn reachable(&self, index: u32) -> BTreeSet<u32> {
        self.extents(index).into_iter().flat_map(|extent| self.ids(extent)).collect()
    }

    /// The clients of this backend stay with it, though no slot names it.
    pub(super) fn keep(&mut self, id: u32) {
        let frontend = self.backend(id).frontend;
        self.undecided.remove(&id);
        if Arc::make_mut(&mut self.kept).insert((frontend, id)) {
            self.take_backends(&[id]);
        }
    }

    /// Ends that, without a decision what follows. Returns whether the backend was kept.
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
    fn adopt_backends(&mut self, ids: &[u32]) {
        self.endpoints += count(ids);
        if !self.undecided.is_empty() {
            self.undecided.retain(|id| ids.binary_search(id).is_err());
        }
        self.take_backends(ids);
    }

    /// The ids are sorted. Those of a new frontend are mostly consecutive, and its backends are of few clusters.
    fn take_backends(&mut self, ids: &[u32]) {
        for run in ids.chunk_by(|one, next| one + 1 == *next) {
            self.allocations.backends.take(Extent { block: run[0], count: count(run) });
        }
        let clusters: Vec<u32> = ids.iter().map(|id| self.backend(*id).cluster).collect();
        for run in clusters.chunk_by(|one, next| one == next) {
            self.allocations.clusters.acquire(run[0], &self.cluster_name(run[0]), count(run));
        }
    }

    fn drop_backend(&mut self, id: u32) {
        self.endpoints -= 1;
        self.undecided.insert(id);
        self.release_cluster(id);
    }

    fn release_cluster(&mut self, id: u32) {
        let cluster = self.backend(id).cluster;
        self.allocations.clusters.release(cluster, &self.cluster_name(cluster));
    }

    fn service_name(&self, id: u32) -> ServiceName {
        let record = self.service(id);
        [record.namespace, record.name]
    }

    fn cluster_name(&self, id: u32) -> ClusterName {
        self.cluster(id).name
    }
}

fn count(ids: &[u32]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}
