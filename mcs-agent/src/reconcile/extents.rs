use std::ops::Range;

use mcs_common::Extent;
use rangemap::RangeSet;

/// Which entries of an array are free.
///
/// What is let go is in limbo first: a reader may still hold it, until [`Extents::settle`].
#[derive(Clone, Debug)]
pub(super) struct Extents {
    free: RangeSet<u32>,
    limbo: RangeSet<u32>,
}

impl Extents {
    /// All of `entries` free.
    pub(super) fn free(entries: Range<u32>) -> Self {
        Self { free: RangeSet::from_iter(non_empty(entries)), limbo: RangeSet::new() }
    }

    /// All of `entries` in limbo.
    pub(super) fn in_limbo(entries: Range<u32>) -> Self {
        Self { free: RangeSet::new(), limbo: RangeSet::from_iter(non_empty(entries)) }
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

    /// Whether the entry is neither free nor in limbo.
    pub(super) fn is_taken(&self, index: u32) -> bool {
        !self.free.contains(&index) && !self.limbo.contains(&index)
    }

    /// In how many pieces is what is in limbo.
    pub(super) fn limbo_pieces(&self) -> usize {
        self.limbo.len()
    }

    /// Marks as in use.
    pub(super) fn take(&mut self, extent: Extent) {
        if let Some(run) = non_empty(extent.range()) {
            self.free.remove(run.clone());
            self.limbo.remove(run);
        }
    }

    /// Puts what was in use into limbo.
    pub(super) fn release(&mut self, extent: Extent) {
        if let Some(run) = non_empty(extent.range()) {
            self.limbo.insert(run);
        }
    }

    /// Every reader that ran at the latest [`Extents::release`] is through: limbo is free.
    pub(super) fn settle(&mut self) {
        self.free.extend(std::mem::take(&mut self.limbo));
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
    fn what_is_let_go_comes_back_after_settling() {
        let mut extents = Extents::free(1..9);
        assert_eq!(extents.find(8), Some(1));
        assert_eq!(extents.find(9), None);
        extents.take(extent(1, 8));
        assert_eq!(extents.find(1), None);

        extents.release(extent(3, 2));
        assert_eq!(extents.find(1), None, "in limbo");
        assert!(!extents.is_taken(3));
        extents.settle();
        assert_eq!(extents.find(2), Some(3));
        assert_eq!(extents.find(3), None);

        extents.release(extent(5, 1));
        extents.settle();
        assert_eq!(extents.find(3), Some(3), "neighbours are one run");
    }

    #[test]
    fn the_lowest_fit_is_found() {
        let mut extents = Extents::free(0..10);
        extents.take(extent(2, 3));
        assert_eq!(extents.find(2), Some(0));
        assert_eq!(extents.find(3), Some(5));
        assert_eq!(extents.each().collect::<Vec<_>>(), [0, 1, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn limbo_can_be_claimed() {
        let mut extents = Extents::in_limbo(1..4);
        assert_eq!(extents.find(1), None);
        extents.take(extent(2, 1));
        extents.settle();
        assert_eq!(extents.each().collect::<Vec<_>>(), [1, 3]);
        assert!(extents.is_taken(2));
    }

    #[test]
    fn an_empty_run_takes_nothing() {
        let mut extents = Extents::free(1..1);
        assert_eq!(extents.find(0), Some(0));
        extents.take(extent(0, 0));
        extents.release(extent(0, 0));
        extents.settle();
        assert_eq!(extents.find(1), None);
    }
}
