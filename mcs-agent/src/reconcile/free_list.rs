//! Which entries of an array are free.

use std::ops::Range;

use mcs_common::Extent;
use rangemap::RangeSet;

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
}
