//! Which entries of the config arrays are in use.

use std::ops::Range;

use super::{NameMap, OfNameMaps, free_list::FreeList, name_table::NameTable};
use crate::model::Capacity;

/// The free, released and used entries of each array.
#[derive(Clone, Debug)]
pub(super) struct Allocations {
    /// Of `states`.
    pub(super) indices: FreeList,
    /// Of `slots`.
    pub(super) blocks: FreeList,
    /// Of `backends`.
    pub(super) backends: FreeList,
    /// Of the maps of names.
    pub(super) names: OfNameMaps<NameTable>,
}

impl Allocations {
    /// No entry in use; `list` makes all of them free or released.
    pub(super) fn new(capacity: Capacity, list: fn(Range<u32>) -> FreeList) -> Self {
        Self {
            indices: list(1..capacity.state_entries()),
            blocks: list(0..capacity.slot_entries()),
            backends: list(1..capacity.backend_entries()),
            names: NameMap::ALL.map(|map| NameTable::new(list(1..map.entries(capacity)))),
        }
    }

    /// How many runs of released entries there are, which is what a clone costs.
    pub(super) fn released_runs(&self) -> usize {
        let lists = [&self.indices, &self.blocks, &self.backends].map(FreeList::released_runs);
        lists.into_iter().chain(self.names.iter().map(NameTable::released_runs)).sum()
    }

    /// As they are once no program reads a released entry any more.
    pub(super) fn after_wait(&self) -> Self {
        let mut after = self.clone();
        after.end_grace_period();
        after
    }

    /// No program reads a released entry any more: all of them are free.
    pub(super) fn end_grace_period(&mut self) {
        self.indices.end_grace_period();
        self.blocks.end_grace_period();
        self.backends.end_grace_period();
        self.names.iter_mut().for_each(NameTable::end_grace_period);
    }
}
