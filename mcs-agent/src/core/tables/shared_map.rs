//! A sorted map whose copies share their unchanged parts.
//!
//! `imbl::OrdMap` does the same under a licence that `.deny.toml` does not have. `rpds::RedBlackTreeMap` allocates twice for each
//! entry, some 100 bytes; this type takes what the entries take.

use std::{borrow::Borrow, fmt, sync::Arc};

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
