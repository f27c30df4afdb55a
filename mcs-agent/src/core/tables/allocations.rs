//! Which entries of the config arrays are in use.

use std::{ops::Range, sync::Arc};

use mcs_common::Extent;
use rangemap::RangeSet;

use super::{NameMap, NameRecord, OfNameMaps, Pages, SharedMap};
use crate::core::model::Capacity;

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

/// The free entries of an array, and the released ones: a program may still read a released entry until
/// the grace period ends ([`FreeList::end_grace_period`]).
#[derive(Clone, Debug)]
pub(super) struct FreeList {
    free: RangeSet<u32>,
    released: RangeSet<u32>,
}

impl FreeList {
    /// All of `entries` free.
    pub(super) fn all_free(entries: Range<u32>) -> Self {
        Self { free: RangeSet::from_iter(non_empty(entries)), released: RangeSet::new() }
    }

    /// All of `entries` released.
    pub(super) fn all_released(entries: Range<u32>) -> Self {
        Self { free: RangeSet::new(), released: RangeSet::from_iter(non_empty(entries)) }
    }

    /// The lowest index at which `count` free entries follow each other: going low keeps the upper
    /// part in one piece. Nothing is taken; an empty run is at 0.
    pub(super) fn find(&self, count: u32) -> Option<u32> {
        if count == 0 {
            return Some(0);
        }
        self.free.iter().find(|run| run.end - run.start >= count).map(|run| run.start)
    }

    /// The free entries, lowest first.
    pub(super) fn each(&self) -> impl Iterator<Item = u32> {
        self.free.iter().cloned().flatten()
    }

    /// Whether the entry is neither free nor released.
    pub(super) fn is_taken(&self, index: u32) -> bool {
        !self.free.contains(&index) && !self.released.contains(&index)
    }

    /// How many runs of released entries there are.
    pub(super) fn released_runs(&self) -> usize {
        self.released.len()
    }

    /// Marks as in use.
    pub(super) fn take(&mut self, extent: Extent) {
        if let Some(run) = non_empty(extent.range()) {
            self.free.remove(run.clone());
            self.released.remove(run);
        }
    }

    /// Marks as no longer in use.
    pub(super) fn release(&mut self, extent: Extent) {
        if let Some(run) = non_empty(extent.range()) {
            self.released.insert(run);
        }
    }

    /// No program reads a released entry any more: all of them are free.
    pub(super) fn end_grace_period(&mut self) {
        self.free.extend(std::mem::take(&mut self.released));
    }
}

/// The one entry at `index`.
pub(super) const fn one(index: u32) -> Extent {
    Extent { block: index, count: 1 }
}

/// A `RangeSet` takes no empty range.
fn non_empty(run: Range<u32>) -> Option<Range<u32>> {
    (!run.is_empty()).then_some(run)
}

/// The entries of an array of names: which are free, which name something refers to, and how many
/// refer to it.
///
/// Index 0 stands for "no name" and is not counted.
#[derive(Clone, Debug)]
pub(super) struct NameTable {
    entries: FreeList,
    /// By [`NameRecord::short`].
    ids: SharedMap<Arc<[u8]>, u32>,
    /// How many refer to each entry.
    uses: Pages<u32>,
    /// How many entries something refers to.
    used: u32,
}

impl NameTable {
    /// No name, in an array with these free and released entries.
    pub(super) fn new(entries: FreeList) -> Self {
        Self { entries, ids: SharedMap::default(), uses: Pages::default(), used: 0 }
    }

    /// How many entries are in use.
    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    /// Whether something refers to the entry.
    pub(super) fn is_used(&self, id: u32) -> bool {
        self.uses.get(id as usize).is_some_and(|uses| *uses > 0)
    }

    /// The entries that something refers to.
    pub(super) fn all_used(&self) -> impl Iterator<Item = u32> {
        (0..).zip(self.uses.iter()).filter(|(_, uses)| **uses > 0).map(|(id, _)| id)
    }

    /// An index for each name: the index that it has, or a free one. The names differ. Nothing is taken.
    pub(super) fn assign(
        &self,
        names: impl Iterator<Item = NameRecord>,
    ) -> impl Iterator<Item = Option<u32>> {
        let mut free = self.entries.each();
        names.map(move |name| self.ids.get(&*name.short()).copied().or_else(|| free.next()))
    }

    /// Something refers to the entry `times` more. `name` is what it holds.
    pub(super) fn acquire(&mut self, id: u32, name: &NameRecord, times: u32) {
        if id == 0 {
            return;
        }
        let uses = self.uses.entry(id as usize);
        let is_new = *uses == 0;
        *uses += times;
        if is_new {
            self.used += 1;
            self.entries.take(one(id));
            self.ids.insert(name.short().into(), id);
        }
    }

    /// Something no longer refers to the entry; after the last, the entry is released.
    pub(super) fn release(&mut self, id: u32, name: &NameRecord) {
        if !self.is_used(id) {
            return;
        }
        let uses = self.uses.entry(id as usize);
        *uses -= 1;
        if *uses == 0 {
            self.used -= 1;
            self.entries.release(one(id));
            let name = name.short();
            if self.ids.get(&*name) == Some(&id) {
                self.ids.remove(&*name);
            }
        }
    }

    /// How many runs of released entries there are.
    pub(super) fn released_runs(&self) -> usize {
        self.entries.released_runs()
    }

    /// No program reads a released entry any more: all of them are free.
    pub(super) fn end_grace_period(&mut self) {
        self.entries.end_grace_period();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(block: u32, count: u32) -> Extent {
        Extent { block, count }
    }

    #[test]
    fn released_entries_are_free_after_the_grace_period() {
        let mut list = FreeList::all_free(1..9);
        assert_eq!(list.find(8), Some(1));
        assert_eq!(list.find(9), None);
        list.take(extent(1, 8));
        assert_eq!(list.find(1), None);

        list.release(extent(3, 2));
        assert_eq!(list.find(1), None, "released only");
        assert!(!list.is_taken(3));
        list.end_grace_period();
        assert_eq!(list.find(2), Some(3));
        assert_eq!(list.find(3), None);

        list.release(extent(5, 1));
        list.end_grace_period();
        assert_eq!(list.find(3), Some(3), "neighbours are one run");
    }

    #[test]
    fn the_lowest_fit_is_found() {
        let mut list = FreeList::all_free(0..10);
        list.take(extent(2, 3));
        assert_eq!(list.find(2), Some(0));
        assert_eq!(list.find(3), Some(5));
        assert_eq!(list.each().collect::<Vec<_>>(), [0, 1, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_released_entry_can_be_taken() {
        let mut list = FreeList::all_released(1..4);
        assert_eq!(list.find(1), None);
        list.take(extent(2, 1));
        list.end_grace_period();
        assert_eq!(list.each().collect::<Vec<_>>(), [1, 3]);
        assert!(list.is_taken(2));
    }

    #[test]
    fn an_empty_run_takes_nothing() {
        let mut list = FreeList::all_free(1..1);
        assert_eq!(list.find(0), Some(0));
        list.take(extent(0, 0));
        list.release(extent(0, 0));
        list.end_grace_period();
        assert_eq!(list.find(1), None);
    }

    fn names() -> NameTable {
        NameTable::new(FreeList::all_free(1..4))
    }

    /// The indices that `wanted` would get, in its order.
    fn assigned<const N: usize>(names: &NameTable, wanted: [&str; N]) -> [u32; N] {
        let mut ids = names.assign(wanted.map(NameRecord::of_cluster).into_iter());
        wanted.map(|_| ids.next().flatten().expect("room"))
    }

    #[test]
    fn an_entry_is_taken_while_something_refers_to_it() {
        let mut names = names();
        names.acquire(1, &NameRecord::of_cluster("b"), 2);
        assert_eq!(assigned(&names, ["a", "b", "c"]), [2, 1, 3]);
        let four = ["a", "b", "c", "d"].map(NameRecord::of_cluster);
        assert!(names.assign(four.into_iter()).any(|id| id.is_none()));

        names.release(1, &NameRecord::of_cluster("b"));
        assert_eq!(assigned(&names, ["a", "b"]), [2, 1]);
        names.release(1, &NameRecord::of_cluster("b"));
        assert_eq!(assigned(&names, ["a", "b"]), [2, 3], "released only");
        names.end_grace_period();
        assert_eq!(assigned(&names, ["a", "b"]), [1, 2]);
    }

    #[test]
    fn index_0_is_no_name() {
        let mut names = names();
        names.acquire(0, &NameRecord::of_cluster("a"), 1);
        assert_eq!(assigned(&names, ["a"]), [1]);
        names.release(0, &NameRecord::of_cluster("a"));
        names.end_grace_period();
        assert_eq!(assigned(&names, ["a"]), [1]);
    }

    #[test]
    fn two_entries_may_say_the_same() {
        let mut names = names();
        names.acquire(1, &NameRecord::of_cluster("a"), 1);
        names.acquire(2, &NameRecord::of_cluster("a"), 1);
        names.release(1, &NameRecord::of_cluster("a"));
        assert_eq!(assigned(&names, ["a"]), [2], "the other stays known");
    }
}
