//! The objects of a list, within the room for them. If there is no room for all, the account that has most gives way: no
//! tenant of a namespace takes the room of the others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::Room;
use crate::{
    ObjectKey,
    decoder::{Decoder, WatchedObject},
};

/// The objects of a list.
pub(crate) struct KeptObjects<D: Decoder> {
    /// `None`: it gave way.
    objects: Vec<Option<WatchedObject<D>>>,
    /// The number of objects without room, by namespace if namespaces have their own room.
    left_out: BTreeMap<String, usize>,
    purses: Purses,
}

enum Purses {
    Endless,
    Total(Purse),
    Each(BTreeMap<String, Purse>),
}

/// A room, and who uses it.
struct Purse {
    /// The remaining bytes.
    left: usize,
    accounts: HashMap<Arc<str>, Account>,
    /// The bytes of each account, the least first.
    ordered: BTreeSet<(usize, Arc<str>)>,
}

#[derive(Default)]
struct Account {
    bytes: usize,
    /// The places of its objects, each with its bytes.
    places: Vec<(usize, usize)>,
}

impl<D: Decoder> KeptObjects<D> {
    pub(crate) fn with_room(room: &Room) -> Self {
        let purses = match room {
            Room::Endless => Purses::Endless,
            Room::Total(most) => Purses::Total(Purse::of(*most)),
            Room::Each(namespaces) => {
                let each = namespaces.iter().map(|(name, most)| (name.clone(), Purse::of(*most)));
                Purses::Each(each.collect())
            }
        };
        Self { objects: Vec::new(), left_out: BTreeMap::new(), purses }
    }

    pub(super) fn push(&mut self, object: WatchedObject<D>) {
        let ObjectKey { namespace, name } = object.key();
        let (purse, of) = match &mut self.purses {
            Purses::Endless => {
                self.objects.push(Some(object));
                return;
            }
            Purses::Total(purse) => (purse, ""),
            Purses::Each(purses) => match purses.get_mut(&*namespace) {
                Some(purse) => (purse, &*namespace),
                None => return,
            },
        };
        let (account, bytes) = (D::account(&name), object.weight());
        while bytes > purse.left {
            let gone = purse.give_way(account, bytes);
            if let Some(gone) = gone.and_then(|place| self.objects.get_mut(place)) {
                *gone = None;
            }
            match self.left_out.get_mut(of) {
                Some(left_out) => *left_out += 1,
                None => drop(self.left_out.insert(of.to_owned(), 1)),
            }
            if gone.is_none() {
                return;
            }
        }
        purse.pay(account, self.objects.len(), bytes);
        self.objects.push(Some(object));
    }

    /// Removes an object that was deleted meanwhile.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        for object in &mut self.objects {
            object.take_if(|object| object.key() == *key);
        }
    }

    /// The objects in the order of the list, and the number of objects without room.
    pub(crate) fn finish(self) -> (Vec<WatchedObject<D>>, BTreeMap<String, usize>) {
        (self.objects.into_iter().flatten().collect(), self.left_out)
    }
}

impl Purse {
    fn of(most: usize) -> Self {
        Self { left: most, accounts: HashMap::new(), ordered: BTreeSet::new() }
    }

    /// Takes the last object of the account that has most, if that is more than `account` would have with `bytes` more.
    /// Returns its place.
    fn give_way(&mut self, account: &str, bytes: usize) -> Option<usize> {
        let own = self.accounts.get(account).map_or(0, |account| account.bytes) + bytes;
        let heaviest = self.ordered.last().filter(|(most, _)| *most > own)?.1.clone();
        let (place, bytes) = self.accounts.get_mut(&heaviest)?.places.pop()?;
        self.left += bytes;
        self.count(&heaviest, |sum| sum.saturating_sub(bytes));
        Some(place)
    }

    fn pay(&mut self, account: &str, place: usize, bytes: usize) {
        let account = match self.accounts.get_key_value(account) {
            Some((known, _)) => Arc::clone(known),
            None => account.into(),
        };
        self.left -= bytes;
        self.accounts.entry(Arc::clone(&account)).or_default().places.push((place, bytes));
        self.count(&account, |sum| sum + bytes);
    }

    fn count(&mut self, name: &Arc<str>, change: impl Fn(usize) -> usize) {
        let Some(account) = self.accounts.get_mut(name) else { return };
        self.ordered.remove(&(account.bytes, Arc::clone(name)));
        account.bytes = change(account.bytes);
        self.ordered.insert((account.bytes, Arc::clone(name)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::objects::ClusterProperty;

    #[derive(Clone, PartialEq, Debug)]
    struct ByNamespace;

    impl Decoder for ByNamespace {
        type Object = ClusterProperty;
        type Value = usize;

        fn convert(_: &ObjectKey, bytes: ClusterProperty) -> Result<usize, String> {
            bytes.value().and_then(|bytes| bytes.parse().ok()).ok_or_else(String::new)
        }

        fn weight(bytes: &usize) -> usize {
            *bytes
        }

        fn account(name: &str) -> &str {
            name.split_once('.').map_or("", |(namespace, _)| namespace)
        }
    }

    fn object(name: &str, bytes: usize) -> WatchedObject<ByNamespace> {
        let metadata = json!({"namespace": "mailbox", "name": name, "resourceVersion": "1"});
        from_value(json!({"metadata": metadata, "spec": {"value": bytes.to_string()}})).unwrap()
    }

    /// The names that are kept of a list, and how many are not.
    fn kept(room: usize, list: &[(&str, usize)]) -> (Vec<String>, usize) {
        let mut kept = KeptObjects::with_room(&Room::Total(room));
        for (name, bytes) in list {
            kept.push(object(name, *bytes));
        }
        let (objects, left_out) = kept.finish();
        let names = objects.iter().map(|object| object.key().name.to_string()).collect();
        (names, left_out.values().sum())
    }

    #[test]
    fn the_namespace_that_has_most_gives_way_wherever_it_is_in_the_alphabet() {
        let large = 100 << 10;
        let hostile: Vec<_> = (0..10).map(|number| format!("a.{number}")).collect();
        let mut list: Vec<_> = hostile.iter().map(|name| (&**name, large)).collect();
        list.extend([("shop.web", large / 2), ("shop.db", large / 2), ("zoo.web", large)]);
        let (names, left_out) = kept(10 * large + (large / 2), &list);
        assert_eq!(names.len() + left_out, 13);
        assert_eq!(names[names.len() - 3..], ["shop.web", "shop.db", "zoo.web"]);
        let (names, left_out) = kept(4 * large, &list);
        assert_eq!(names.iter().filter(|name| name.starts_with("a.")).count(), 1, "{names:?}");
        assert_eq!((names.len(), left_out), (4, 9));
    }

    #[test]
    fn equals_keep_what_they_have() {
        let (names, left_out) = kept(5000, &[("a.1", 2000), ("b.1", 2000), ("c.1", 2000)]);
        assert_eq!((names, left_out), (vec!["a.1".to_owned(), "b.1".to_owned()], 1));
    }
}
