//! Which entries of `services` and `clusters` hold a name that something refers to.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use super::free_list::{FreeList, one};

/// The entries of an array of names: which are free, which name something refers to, and how many
/// refer to it.
///
/// Index 0 stands for "no name" and is not counted.
#[derive(Clone, Debug)]
pub(super) struct NameTable<K> {
    entries: FreeList,
    ids: Arc<BTreeMap<K, u32>>,
    uses: Arc<BTreeMap<u32, u32>>,
}

impl<K: Ord + Clone> NameTable<K> {
    /// No name, in an array with these free and released entries.
    pub(super) fn new(entries: FreeList) -> Self {
        Self { entries, ids: Arc::default(), uses: Arc::default() }
    }

    fn id(&self, name: &K) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// An index for each name: the one it has, or a free one. Nothing is taken.
    pub(super) fn assign(&self, names: BTreeSet<K>) -> Option<BTreeMap<K, u32>> {
        let mut free = self.entries.each();
        names
            .into_iter()
            .map(|name| {
                let id = self.id(&name).or_else(|| free.next())?;
                Some((name, id))
            })
            .collect()
    }

    /// Something more refers to the entry.
    pub(super) fn acquire(&mut self, id: u32, name: K) {
        if id == 0 {
            return;
        }
        let uses = Arc::make_mut(&mut self.uses).entry(id).or_default();
        *uses += 1;
        if *uses == 1 {
            self.entries.take(one(id));
            Arc::make_mut(&mut self.ids).insert(name, id);
        }
    }

    /// Something no longer refers to the entry; after the last, the entry is released.
    pub(super) fn release(&mut self, id: u32, name: &K) {
        let Entry::Occupied(mut uses) = Arc::make_mut(&mut self.uses).entry(id) else { return };
        *uses.get_mut() -= 1;
        if *uses.get() == 0 {
            uses.remove();
            self.entries.release(one(id));
            if self.id(name) == Some(id) {
                Arc::make_mut(&mut self.ids).remove(name);
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

    fn names() -> NameTable<&'static str> {
        NameTable::new(FreeList::all_free(1..4))
    }

    /// The indices that `wanted` would get, in its order.
    fn assigned<const N: usize>(
        names: &NameTable<&'static str>,
        wanted: [&'static str; N],
    ) -> [u32; N] {
        let ids = names.assign(wanted.into()).expect("room");
        wanted.map(|name| ids[name])
    }

    #[test]
    fn an_entry_is_taken_while_something_refers_to_it() {
        let mut names = names();
        names.acquire(1, "b");
        names.acquire(1, "b");
        assert_eq!(assigned(&names, ["a", "b", "c"]), [2, 1, 3]);
        assert_eq!(names.assign(["a", "b", "c", "d"].into()), None);

        names.release(1, &"b");
        assert_eq!(assigned(&names, ["a", "b"]), [2, 1]);
        names.release(1, &"b");
        assert_eq!(assigned(&names, ["a", "b"]), [2, 3], "released only");
        names.end_grace_period();
        assert_eq!(assigned(&names, ["a", "b"]), [1, 2]);
    }

    #[test]
    fn index_0_is_no_name() {
        let mut names = names();
        names.acquire(0, "a");
        assert_eq!(assigned(&names, ["a"]), [1]);
        names.release(0, &"a");
        names.end_grace_period();
        assert_eq!(assigned(&names, ["a"]), [1]);
    }

    #[test]
    fn two_entries_may_say_the_same() {
        let mut names = names();
        names.acquire(1, "a");
        names.acquire(2, "a");
        names.release(1, &"a");
        assert_eq!(assigned(&names, ["a"]), [2], "the other stays known");
    }
}
