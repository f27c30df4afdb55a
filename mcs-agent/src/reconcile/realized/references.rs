//! What refers to what: the entries in use are those that a reader can reach.

use std::collections::BTreeSet;

use mcs_common::{Extent, FrontendKey};

use super::Realized;
use crate::reconcile::{
    extents::one,
    ledger::{ClusterName, ServiceName},
};

impl Realized {
    /// A reader may come to `index`: what its state refers to is in use.
    pub(super) fn adopt(&mut self, index: u32) {
        let state = self.state(index);
        self.ledger.indices.take(one(index));
        self.ledger.services.acquire(state.service, self.service_name(state.service));
        self.ledger.blocks.take(state.extent);
        for id in self.ids(state.extent).collect::<BTreeSet<_>>() {
            self.adopt_backend(id);
        }
    }

    /// No reader comes to the frontend any more: what it refers to is let go.
    pub(super) fn withdraw(&mut self, key: &FrontendKey) {
        self.doubt.frontends.remove(key);
        if let Some(index) = self.index(key) {
            for id in self.reachable(index) {
                self.drop_backend(id);
            }
            for extent in self.extents(index) {
                self.ledger.blocks.release(extent);
            }
            self.doubt.extents.remove(&index);
            let service = self.state(index).service;
            self.ledger.services.release(service, &self.service_name(service));
            self.ledger.indices.release(one(index));
        }
        self.damaged.remove(key);
    }

    /// The frontend at `index` refers to another service.
    pub(super) fn refer(&mut self, index: u32, service: u32) {
        let former = self.state(index).service;
        self.ledger.services.acquire(service, self.service_name(service));
        self.ledger.services.release(former, &self.service_name(former));
    }

    /// A reader may come from `index` to `extent`, besides where it comes already.
    pub(super) fn reach(&mut self, index: u32, extent: Extent) {
        if self.extents(index).contains(&extent) {
            return;
        }
        self.ledger.blocks.take(extent);
        let reachable = self.reachable(index);
        let added: BTreeSet<u32> = self.ids(extent).filter(|id| !reachable.contains(id)).collect();
        for id in added {
            self.adopt_backend(id);
        }
    }

    /// A reader comes from `index` to `extent` alone.
    pub(super) fn leave_all_but(&mut self, index: u32, extent: Extent) {
        let kept: BTreeSet<u32> = self.ids(extent).collect();
        for id in self.reachable(index).difference(&kept) {
            self.drop_backend(*id);
        }
        for former in self.extents(index) {
            if former != extent {
                self.ledger.blocks.release(former);
            }
        }
        self.doubt.extents.remove(&index);
    }

    /// The extents that a reader may come to from `index`.
    fn extents(&self, index: u32) -> BTreeSet<Extent> {
        let mut extents = self.doubt.extents.get(&index).cloned().unwrap_or_default();
        extents.insert(self.state(index).extent);
        extents
    }

    /// The backends that a reader may come to from `index`.
    fn reachable(&self, index: u32) -> BTreeSet<u32> {
        self.extents(index).into_iter().flat_map(|extent| self.ids(extent)).collect()
    }

    fn adopt_backend(&mut self, id: u32) {
        self.endpoints += 1;
        self.ledger.backends.take(one(id));
        let cluster = self.backend(id).cluster;
        self.ledger.clusters.acquire(cluster, self.cluster_name(cluster));
    }

    fn drop_backend(&mut self, id: u32) {
        self.endpoints -= 1;
        self.stale.insert(id);
        let cluster = self.backend(id).cluster;
        self.ledger.clusters.release(cluster, &self.cluster_name(cluster));
    }

    fn service_name(&self, id: u32) -> ServiceName {
        let record = self.service(id);
        [record.namespace, record.name]
    }

    fn cluster_name(&self, id: u32) -> ClusterName {
        self.cluster(id).name
    }
}
