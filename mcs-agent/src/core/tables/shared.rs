//! Large collections whose clones share their unchanged parts: an array in pages, and a sorted map.

use std::{
    borrow::Borrow,
    fmt,
    ops::{Index, IndexMut},
    sync::Arc,
};

use bytemuck::Zeroable;

/// The entries of a page, which are copied together.
const PAGE: usize = 64;
/// The pages of a chapter, whose references are copied together.
const CHAPTER: usize = 64;
const CHAPTER_ENTRIES: usize = CHAPTER * PAGE;

/// An array whose copies share the pages that neither has written since. A copy of a million entries
/// increments some 250 reference counts. The first write after it copies a page of 64 entries and
/// increments 64 counts. Entries past the end are zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pages<T> {
    /// All are full, except the last.
    chapters: Vec<Arc<Chapter<T>>>,
}

/// Pages, all full except the last.
type Chapter<T> = Vec<Arc<Vec<T>>>;

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { chapters: Vec::new() }
    }
}

impl<T: Copy + Zeroable> Pages<T> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        let Some((chapter, whole)) = self.chapters.split_last() else { return 0 };
        let pages = chapter.split_last();
        let in_last = pages.map_or(0, |(page, whole)| whole.len() * PAGE + page.len());
        whole.len() * CHAPTER_ENTRIES + in_last
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.chapters.is_empty()
    }

    /// The entry at `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chapters.get(index / CHAPTER_ENTRIES)?.get(index / PAGE % CHAPTER)?.get(index % PAGE)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chapters.iter().flat_map(|chapter| chapter.iter()).flat_map(|page| page.iter())
    }

    /// The entry at `index` for writing. The array grows to this index if it is shorter.
    pub(super) fn entry(&mut self, index: usize) -> &mut T {
        let chapter = full_up_to(&mut self.chapters, index / CHAPTER_ENTRIES, |chapter| {
            let last = full_up_to(chapter, CHAPTER - 1, |page| page.resize(PAGE, T::zeroed()));
            last.resize(PAGE, T::zeroed());
        });
        let page = full_up_to(chapter, index / PAGE % CHAPTER, |page| {
            page.resize(PAGE, T::zeroed());
        });
        if page.len() <= index % PAGE {
            page.resize(index % PAGE + 1, T::zeroed());
        }
        &mut page[index % PAGE]
    }
}

/// The part at `index`, no longer shared. Parts before it that are not full are filled.
fn full_up_to<P: Clone + Default>(
    parts: &mut Vec<Arc<P>>,
    index: usize,
    fill: impl Fn(&mut P),
) -> &mut P {
    while parts.len() <= index {
        if let Some(last) = parts.last_mut() {
            fill(Arc::make_mut(last));
        }
        parts.push(Arc::default());
    }
    Arc::make_mut(&mut parts[index])
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.chapters[index / CHAPTER_ENTRIES][index / PAGE % CHAPTER][index % PAGE]
    }
}

impl<T: Clone> IndexMut<usize> for Pages<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        let chapter = Arc::make_mut(&mut self.chapters[index / CHAPTER_ENTRIES]);
        &mut Arc::make_mut(&mut chapter[index / PAGE % CHAPTER])[index % PAGE]
    }
}

impl<T: Copy> FromIterator<T> for Pages<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let pages = parts(entries.into_iter(), PAGE);
        Self { chapters: parts(pages, CHAPTER).collect() }
    }
}

/// Splits into parts of `size`; the last part can be smaller.
fn parts<T>(mut all: impl Iterator<Item = T>, size: usize) -> impl Iterator<Item = Arc<Vec<T>>> {
    std::iter::from_fn(move || {
        let part: Vec<T> = all.by_ref().take(size).collect();
        (!part.is_empty()).then(|| Arc::new(part))
    })
}

impl<T: Copy> From<Vec<T>> for Pages<T> {
    fn from(entries: Vec<T>) -> Self {
        entries.into_iter().collect()
    }
}

/// The most entries of a leaf, which are copied together.
const LEAF: usize = 256;

/// A sorted map. A copy costs nothing. The first change after it copies a leaf of at most 256 entries, and a reference to each
/// leaf.
#[derive(Clone)]
pub struct SharedMap<K, V> {
    /// In the order of their keys. None is empty.
    leaves: Arc<Vec<Leaf<K, V>>>,
    len: usize,
}

/// Entries in the order of their keys.
type Leaf<K, V> = Arc<Vec<(K, V)>>;

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { leaves: Arc::default(), len: 0 }
    }
}

impl<K, V> SharedMap<K, V> {
    /// How many entries it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.leaves.iter().flat_map(|leaf| leaf.iter()).map(|(key, value)| (key, value))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (leaf, Ok(place)) = self.find(key) else { return None };
        Some(&self.leaves[leaf][place].1)
    }

    /// Whether it has the key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The leaf that has the key or would get it, and its place there. The leaf does not exist if the map is empty.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let later = self.leaves.partition_point(|leaf| leaf[0].0.borrow() <= key);
        let leaf = later.saturating_sub(1);
        let Some(entries) = self.leaves.get(leaf) else { return (leaf, Err(0)) };
        (leaf, entries.binary_search_by(|(other, _)| Ord::cmp(other.borrow(), key)))
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Gives a key a value. Returns its former one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (leaf, place) = self.find(&key);
        let leaves = Arc::make_mut(&mut self.leaves);
        let place = match place {
            Ok(place) => {
                let former = &mut Arc::make_mut(&mut leaves[leaf])[place].1;
                return Some(std::mem::replace(former, value));
            }
            Err(place) => place,
        };
        self.len += 1;
        match leaves.get_mut(leaf) {
            Some(entries) if entries.len() < LEAF => {
                Arc::make_mut(entries).insert(place, (key, value));
            }
            // Keys that come in order fill each leaf.
            Some(_) if place == LEAF => leaves.insert(leaf + 1, Arc::new(vec![(key, value)])),
            Some(entries) => {
                let lower = Arc::make_mut(entries);
                let mut upper = lower.split_off(LEAF / 2);
                match place.checked_sub(LEAF / 2) {
                    Some(place) => upper.insert(place, (key, value)),
                    None => lower.insert(place, (key, value)),
                }
                leaves.insert(leaf + 1, Arc::new(upper));
            }
            None => leaves.push(Arc::new(vec![(key, value)])),
        }
        None
    }

    /// Removes a key. Returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (leaf, Ok(place)) = self.find(key) else { return None };
        let leaves = Arc::make_mut(&mut self.leaves);
        let entries = Arc::make_mut(&mut leaves[leaf]);
        let (_, value) = entries.remove(place);
        self.len -= 1;
        if entries.is_empty() {
            leaves.remove(leaf);
        } else {
            join(leaves, leaf);
            if let Some(before) = leaf.checked_sub(1) {
                join(leaves, before);
            }
        }
        Some(value)
    }
}

/// Makes one of a leaf and the next, if together they fill half of one.
fn join<K: Clone, V: Clone>(leaves: &mut Vec<Leaf<K, V>>, leaf: usize) {
    let Some([one, next]) = leaves.get(leaf..leaf + 2) else { return };
    if one.len() + next.len() <= LEAF / 2 {
        let next = leaves.remove(leaf + 1);
        Arc::make_mut(&mut leaves[leaf]).extend(next.iter().cloned());
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

/// Two maps can split the same entries differently.
impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.leaves, &other.leaves)
            || self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn is_an_array_that_reaches_as_far_as_it_was_written(
            writes in vec((0_usize..3 * CHAPTER_ENTRIES, any::<u32>()), 0..40),
            copied_at in 0_usize..40,
        ) {
            let mut array = Vec::<u32>::new();
            let mut pages = Pages::default();
            let mut copy = None;
            for (turn, (index, value)) in writes.into_iter().enumerate() {
                if turn == copied_at {
                    copy = Some((pages.clone(), array.clone()));
                }
                array.resize(array.len().max(index + 1), 0);
                array[index] = value;
                *pages.entry(index) = !value;
                pages[index] = value;
            }
            for (pages, array) in copy.into_iter().chain([(pages, array)]) {
                prop_assert_eq!(pages.len(), array.len());
                prop_assert_eq!(pages.is_empty(), array.is_empty());
                prop_assert_eq!(pages.get(array.len()), None);
                prop_assert!(pages.iter().eq(&array));
                prop_assert_eq!(&pages, &Pages::from(array));
            }
        }
    }

    proptest! {
        #[test]
        fn is_a_sorted_map(
            changes in vec((0_u32..3_000, prop::option::of(any::<u8>())), 0..4_000),
            in_order in 0_u32..2_000,
            copied_at in 0_usize..4_000,
        ) {
            let mut expected: BTreeMap<u32, u8> = (0..in_order).map(|key| (key, 0)).collect();
            let mut map: SharedMap<u32, u8> = expected.clone().into_iter().collect();
            let mut copy = None;
            for (turn, (key, value)) in changes.into_iter().enumerate() {
                if turn == copied_at {
                    copy = Some((map.clone(), expected.clone()));
                }
                let former = if let Some(value) = value {
                    (map.insert(key, value), expected.insert(key, value))
                } else {
                    (map.remove(&key), expected.remove(&key))
                };
                prop_assert_eq!(former.0, former.1);
                prop_assert_eq!(map.get(&key), expected.get(&key));
            }
            for (map, expected) in copy.into_iter().chain([(map, expected)]) {
                prop_assert_eq!((map.len(), map.is_empty()), (expected.len(), expected.is_empty()));
                prop_assert!(map.iter().eq(&expected));
                prop_assert!(map.leaves.iter().all(|leaf| (1..=LEAF).contains(&leaf.len())));
                prop_assert_eq!(&map, &expected.into_iter().rev().collect());
            }
        }
    }

    #[test]
    fn keys_in_order_fill_each_leaf_and_what_is_left_shares_one() {
        let mut map: SharedMap<u32, ()> = (0..1024).map(|key| (key, ())).collect();
        assert_eq!(map.leaves.len(), 1024 / LEAF);
        for key in (0..1024).filter(|key| key % 16 != 0) {
            map.remove(&key);
        }
        assert_eq!((map.len(), map.leaves.len()), (64, 1));
    }
}
