//! Which entries of a map of names hold a name that something refers to.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{
    free_list::{FreeList, one},
    names::NameRecord,
};

/// The entries of an array of names: which are free, which name something refers to, and how many
/// refer to it.
///
/// Index 0 stands for "no name" and is not counted.
#[derive(Clone, Debug)]
pub(super) struct NameTable {
    entries: FreeList,
    /// By [`NameRecord::short`].
    ids: Arc<BTreeMap<Box<[u8]>, u32>>,
    uses: Arc<BTreeMap<u32, u32>>,
}

impl NameTable {
    /// No name, in an array with these free and released entries.
    pub(super) fn new(entries: FreeList) -> Self {
        Self { entries, ids: Arc::default(), uses: Arc::default() }
    }

    /// How many entries are in use.
    pub(super) fn used(&self) -> u32 {
        u32::try_from(self.uses.len()).unwrap_or(u32::MAX)
    }

    /// Whether something refers to the entry.
    pub(super) fn is_used(&self, id: u32) -> bool {
        self.uses.contains_key(&id)
    }

    /// The entries that something refers to.
    pub(super) fn all_used(&self) -> impl ExactSizeIterator<Item = u32> {
        self.uses.keys().copied()
    }

    /// An index for each name: the index that it has, or a free one. The names differ. Nothing is taken.
    pub(super) fn assign(
        &self,
        names: impl Iterator<Item = NameRecord>,
    ) -> impl Iterator<Item = Option<u32>> {
        let mut free = self.entries.each();
        names.map(move |name| self.ids.get(&name.short()).copied().or_else(|| free.next()))
    }

    /// Something refers to the entry `times` more. `name` is what it holds.
    pub(super) fn acquire(&mut self, id: u32, name: &NameRecord, times: u32) {
        if id == 0 {
            return;
        }
        let uses = Arc::make_mut(&mut self.uses).entry(id).or_default();
        let is_new = *uses == 0;
        *uses += times;
        if is_new {
            self.entries.take(one(id));
            Arc::make_mut(&mut self.ids).insert(name.short(), id);
        }
    }

    /// Something no longer refers to the entry; after the last, the entry is released.
    pub(super) fn release(&mut self, id: u32, name: &NameRecord) {
        let Entry::Occupied(mut uses) = Arc::make_mut(&mut self.uses).entry(id) else { return };
        *uses.get_mut() -= 1;
        if *uses.get() == 0 {
            uses.remove();
            self.entries.release(one(id));
            let name = name.short();
            if self.ids.get(&name) == Some(&id) {
                Arc::make_mut(&mut self.ids).remove(&name);
            }
        }
    }

    /// As [`FreeList::released_runs`].
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
