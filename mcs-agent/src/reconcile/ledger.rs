use std::ops::Range;

use super::{extents::Extents, names::Names};
use crate::model::Capacity;

/// A service's namespace and name, as [`mcs_common::ServiceRecord`] holds them.
pub(super) type ServiceName = [[i8; 64]; 2];

/// A cluster's name, as [`mcs_common::ClusterRecord`] holds it.
pub(super) type ClusterName = [i8; 64];

/// Which entries of each array are in use, in limbo, and free.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// Of `states`.
    pub(super) indices: Extents,
    /// Of `slots`.
    pub(super) blocks: Extents,
    /// Of `backends`.
    pub(super) backends: Extents,
    /// Of `services`.
    pub(super) services: Names<ServiceName>,
    /// Of `clusters`.
    pub(super) clusters: Names<ClusterName>,
}

impl Ledger {
    /// Nothing in use; `extents` tells whether all is free or in limbo.
    pub(super) fn new(capacity: Capacity, extents: fn(Range<u32>) -> Extents) -> Self {
        Self {
            indices: extents(1..capacity.state_entries()),
            blocks: extents(0..capacity.slot_entries()),
            backends: extents(1..capacity.backend_entries()),
            services: Names::new(extents(1..capacity.service_entries())),
            clusters: Names::new(extents(1..capacity.cluster_entries())),
        }
    }

    /// In how many pieces is what is in limbo: what a copy costs.
    pub(super) fn limbo_pieces(&self) -> usize {
        let extents = [&self.indices, &self.blocks, &self.backends].map(Extents::limbo_pieces);
        extents.iter().sum::<usize>() + self.services.limbo_pieces() + self.clusters.limbo_pieces()
    }

    /// No reader holds any longer what was let go: limbo is free.
    pub(super) fn settle(&mut self) {
        self.indices.settle();
        self.blocks.settle();
        self.backends.settle();
        self.services.settle();
        self.clusters.settle();
    }
}
