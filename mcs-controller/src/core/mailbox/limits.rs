//! The limits of a peer's mailbox. Objects beyond a limit are counted and not stored: no peer can exhaust the memory of the
//! process, which follows all peers. If a limit is reached, the namespace that has most gives way: no tenant of a peer keeps
//! the others from changing.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::RandomState},
    hash::{BuildHasher as _, Hash},
    mem::take,
    sync::Arc,
};

use super::problem::MailboxProblem;
use crate::core::{
    clusterset::{ServiceSpec, SourceSlice},
    objects::{Exported, Limits},
};

/// The most objects beyond the limits that are remembered one by one.
const MOST_REMEMBERED: usize = 100_000;
/// The bytes of an object apart from its counted parts.
const OBJECT: usize = 512;
/// The overhead of a text.
const TEXT: usize = 48;

/// A watched resource of a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Resource {
    Services,
    Slices,
}

/// A limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    Services,
    Endpoints,
    Bytes,
}

impl Limit {
    const ALL: [Self; 3] = [Self::Services, Self::Endpoints, Self::Bytes];

    /// The field of `spec.limits`.
    const fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Endpoints => "endpoints",
            Self::Bytes => "bytes",
        }
    }

    const fn most(self, limits: Limits) -> usize {
        match self {
            Self::Services => limits.services,
            Self::Endpoints => limits.endpoints,
            Self::Bytes => limits.bytes,
        }
    }
}

/// The cost of an object.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Size {
    services: usize,
    endpoints: usize,
    bytes: usize,
}

/// The use of each namespace, and which one has most.
#[derive(Default, Debug)]
struct Namespaces {
    uses: HashMap<Arc<str>, Size>,
    /// By each limit, the least first.
    ordered: [BTreeSet<(usize, Arc<str>)>; 3],
}

impl Namespaces {
    fn of(&self, namespace: &str) -> Size {
        self.uses.get(namespace).copied().unwrap_or_default()
    }

    fn change(&mut self, namespace: &Arc<str>, former: Size, size: Size) {
        let before = self.uses.remove(namespace).unwrap_or_default();
        let mut after = before;
        after.remove(former);
        after.add(size);
        for (limit, ordered) in Limit::ALL.into_iter().zip(&mut self.ordered) {
            ordered.remove(&(before.of(limit), Arc::clone(namespace)));
            if after.of(limit) > 0 {
                ordered.insert((after.of(limit), Arc::clone(namespace)));
            }
        }
        if Limit::ALL.into_iter().any(|limit| after.of(limit) > 0) {
            self.uses.insert(Arc::clone(namespace), after);
        }
    }

    fn heaviest(&self, limit: Limit) -> Option<&(usize, Arc<str>)> {
        self.ordered[limit as usize].last()
    }
}

/// The stored and the left out objects of one resource, by a hash of their names.
#[derive(Default, Debug)]
struct Account {
    kept: HashMap<u64, (Arc<str>, Size)>,
    /// Objects that are not stored, or are stored in a former version.
    left_out: HashSet<u64>,
    /// Further left out objects, which are only counted.
    uncounted: usize,
    /// The objects that the next list will lack.
    lacking: usize,
}

/// The limits and the use of a mailbox.
#[derive(Debug)]
pub(super) struct Ledger {
    /// `None` for this cluster's own mailbox.
    limits: Option<Limits>,
    accounts: [Account; 2],
    total: Size,
    namespaces: Namespaces,
    /// What has become free since the last list.
    freed: Size,
    /// The last exceeded limit: its field, and its value.
    exceeded: (&'static str, usize),
    hasher: RandomState,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            limits: None,
            accounts: Default::default(),
            total: Size::default(),
            namespaces: Namespaces::default(),
            freed: Size::default(),
            exceeded: ("", 0),
            hasher: RandomState::new(),
        }
    }

    /// Sets the limits, from the next list on.
    pub(super) const fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// The next list lacks this many objects.
    pub(super) const fn note_left_out(&mut self, resource: Resource, objects: usize) {
        self.accounts[resource as usize].lacking = objects;
    }

    /// Starts a list, which replaces all objects.
    pub(super) fn begin(&mut self, resource: Resource) {
        let account = &mut self.accounts[resource as usize];
        let former = take(account);
        account.uncounted = former.lacking;
        for (namespace, size) in former.kept.into_values() {
            self.total.remove(size);
            self.namespaces.change(&namespace, size, Size::default());
        }
        self.freed = Size::default();
        if account.uncounted > 0 {
            self.exceeded = ("bytes", self.limits.map_or(0, |limits| limits.bytes));
        }
    }

    /// Stores an object, or its new content, of a namespace. The error is the limit without room for it.
    pub(super) fn admit(
        &mut self,
        resource: Resource,
        (namespace, name): (&Arc<str>, &impl Hash),
        size: Size,
    ) -> Result<(), Limit> {
        let Some(limits) = self.limits else { return Ok(()) };
        let key = self.hasher.hash_one(name);
        let account = &mut self.accounts[resource as usize];
        let former = account.kept.get(&key).map(|(_, size)| *size).unwrap_or_default();
        let mut total = self.total;
        total.remove(former);
        total.add(size);
        let is_exceeded = |limit: &Limit| {
            total.of(*limit) > limit.most(limits) && size.of(*limit) > former.of(*limit)
        };
        if let Some(limit) = Limit::ALL.into_iter().find(is_exceeded) {
            return Err(limit);
        }
        account.left_out.remove(&key);
        account.kept.insert(key, (Arc::clone(namespace), size));
        self.namespaces.change(namespace, former, size);
        self.freed.add(former.less(size));
        self.total = total;
        Ok(())
    }

    /// The namespace that has most, if it has more than this one would have with this size of an object.
    pub(super) fn heaviest(
        &self,
        resource: Resource,
        limit: Limit,
        (namespace, name): (&str, &impl Hash),
        size: Size,
    ) -> Option<Arc<str>> {
        let kept = self.accounts[resource as usize].kept.get(&self.hasher.hash_one(name));
        let former = kept.map_or(0, |(_, former)| former.of(limit));
        let own = (self.namespaces.of(namespace).of(limit) + size.of(limit)).saturating_sub(former);
        let (most, heaviest) = self.namespaces.heaviest(limit)?;
        (*most > own).then(|| Arc::clone(heaviest))
    }

    /// Counts an object that is not stored, or is stored in a former version.
    pub(super) fn leave_out(&mut self, resource: Resource, name: &impl Hash, limit: Limit) {
        let key = self.hasher.hash_one(name);
        self.exceeded = (limit.name(), self.limits.map_or(0, |limits| limit.most(limits)));
        let account = &mut self.accounts[resource as usize];
        if account.left_out.len() < MOST_REMEMBERED {
            account.left_out.insert(key);
        } else if !account.left_out.contains(&key) {
            account.uncounted += 1;
        }
    }

    /// Counts a stored object that gives way to others.
    pub(super) fn give_way(&mut self, resource: Resource, name: &impl Hash, limit: Limit) {
        self.forget(resource, name);
        self.leave_out(resource, name, limit);
    }

    /// Forgets a deleted object.
    pub(super) fn remove(&mut self, resource: Resource, name: &impl Hash) {
        let former = self.forget(resource, name);
        let key = self.hasher.hash_one(name);
        let account = &mut self.accounts[resource as usize];
        let was_left_out = account.left_out.remove(&key);
        self.freed.add(former.unwrap_or_default());
        if !was_left_out && former.is_none() {
            // What is neither stored nor remembered was only counted.
            account.uncounted = account.uncounted.saturating_sub(1);
        }
    }

    fn forget(&mut self, resource: Resource, name: &impl Hash) -> Option<Size> {
        let key = self.hasher.hash_one(name);
        let (namespace, size) = self.accounts[resource as usize].kept.remove(&key)?;
        self.total.remove(size);
        self.namespaces.change(&namespace, size, Size::default());
        Some(size)
    }

    /// Whether so much has become free since the last list that what was left out may fit.
    pub(super) fn has_freed(&self) -> bool {
        self.limits.is_some_and(|limits| {
            Limit::ALL.into_iter().any(|limit| {
                self.freed.of(limit) > 0 && self.freed.of(limit) >= limit.most(limits) / 16
            })
        })
    }

    /// The number of left out ExportedServices, and of left out slices.
    pub(super) fn left_out(&self) -> [usize; 2] {
        [Resource::Services, Resource::Slices].map(|resource| {
            let account = &self.accounts[resource as usize];
            account.left_out.len() + account.uncounted
        })
    }

    /// The limit that keeps objects out.
    pub(super) fn problem(&self) -> Option<MailboxProblem> {
        let [services, slices] = self.left_out();
        let (limit, most) = self.exceeded;
        (services + slices > 0).then_some(MailboxProblem::OverLimit {
            limit,
            most,
            services,
            slices,
        })
    }

    /// Removes from a peer's export what no import can have.
    pub(super) fn usable(&self, exported: Exported) -> Exported {
        if self.limits.is_none() {
            return exported;
        }
        Exported { export: exported.export.publishable(), ..exported }
    }
}

impl Size {
    /// The size of an unreadable ExportedService.
    pub(super) const OF_UNREAD: Self = Self { services: 1, endpoints: 0, bytes: OBJECT };

    pub(super) fn of_service(exported: &Exported) -> Self {
        Self { services: 1, endpoints: 0, bytes: exported.weight() }
    }

    pub(super) fn of_slice(slice: &SourceSlice) -> Self {
        Self { services: 0, endpoints: slice.endpoints.len(), bytes: slice.weight() }
    }

    const fn of(self, limit: Limit) -> usize {
        match limit {
            Limit::Services => self.services,
            Limit::Endpoints => self.endpoints,
            Limit::Bytes => self.bytes,
        }
    }

    /// How much less the other one is.
    const fn less(mut self, other: Self) -> Self {
        self.remove(other);
        self
    }

    const fn add(&mut self, other: Self) {
        self.services += other.services;
        self.endpoints += other.endpoints;
        self.bytes += other.bytes;
    }

    const fn remove(&mut self, other: Self) {
        self.services = self.services.saturating_sub(other.services);
        self.endpoints = self.endpoints.saturating_sub(other.endpoints);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

impl Exported {
    /// About how many bytes of memory it takes.
    pub fn weight(&self) -> usize {
        let slices: usize = self.slices.iter().map(|name| TEXT + name.len()).sum();
        let addresses = self.export.vips.len() * TEXT;
        OBJECT + slices + addresses + self.export.spec().map_or(0, ServiceSpec::weight)
    }
}

impl ServiceSpec {
    /// About how many bytes of memory it takes.
    pub fn weight(&self) -> usize {
        let pairs = |pairs: &BTreeMap<Arc<str>, Arc<str>>| -> usize {
            pairs.iter().map(|(key, value)| 2 * TEXT + key.len() + value.len()).sum()
        };
        let ports: usize = self.ports.iter().map(|port| 2 * TEXT + port.name.len()).sum();
        pairs(&self.labels) + pairs(&self.annotations) + ports
    }
}

impl SourceSlice {
    /// About how many bytes of memory it takes. Zones and nodes repeat.
    pub fn weight(&self) -> usize {
        let hostname = |name: &Arc<str>| TEXT + name.len();
        let endpoint = |one: &crate::core::clusterset::Endpoint| {
            size_of_val(one) + one.hostname.as_ref().map_or(0, hostname)
        };
        let endpoints: usize = self.endpoints.iter().map(endpoint).sum();
        let ports: usize = self.ports.iter().map(|port| 2 * TEXT + port.name.len()).sum();
        OBJECT + self.name.len() + endpoints + ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::{ServicePort, SlicePort, fixture};

    const LIMITS: Limits = Limits { services: 2, endpoints: 10, bytes: 1000 };

    fn slice(endpoints: usize, bytes: usize) -> Size {
        Size { services: 0, endpoints, bytes }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        ledger.set_limits(LIMITS);
        ledger
    }

    impl Ledger {
        /// Stores an object of the namespace `shop`, or leaves it out.
        fn take(&mut self, resource: Resource, name: &impl Hash, size: Size) -> bool {
            let admitted = self.admit(resource, (&"shop".into(), name), size);
            admitted.map_err(|limit| self.leave_out(resource, name, limit)).is_ok()
        }
    }

    #[test]
    fn each_limit_keeps_objects_out() {
        let mut ledger = ledger();
        let service = Size { services: 1, endpoints: 0, bytes: 10 };
        assert!(ledger.take(Resource::Services, &"a", service));
        assert!(ledger.take(Resource::Services, &"b", service));
        assert!(!ledger.take(Resource::Services, &"c", service));
        assert!(!ledger.take(Resource::Services, &"c", service), "it counts once");
        assert_eq!((ledger.left_out(), ledger.exceeded), ([1, 0], ("services", 2)));
        assert!(ledger.take(Resource::Slices, &"a", slice(8, 100)));
        assert!(!ledger.take(Resource::Slices, &"b", slice(3, 100)));
        assert_eq!(ledger.exceeded, ("endpoints", 10));
        assert!(!ledger.take(Resource::Slices, &"c", slice(1, 900)));
        assert_eq!((ledger.left_out(), ledger.exceeded), ([1, 2], ("bytes", 1000)));
    }

    #[test]
    fn what_shrinks_or_goes_makes_room() {
        let mut ledger = ledger();
        assert!(ledger.take(Resource::Slices, &"a", slice(8, 100)));
        assert!(!ledger.take(Resource::Slices, &"a", slice(11, 100)), "it stays as it was");
        assert!(ledger.problem().is_some());
        assert!(ledger.take(Resource::Slices, &"a", slice(4, 100)));
        assert!(ledger.problem().is_none());
        assert!(!ledger.take(Resource::Slices, &"b", slice(7, 100)));
        ledger.remove(Resource::Slices, &"a");
        assert!(ledger.take(Resource::Slices, &"b", slice(7, 100)));
        assert!(ledger.problem().is_none());
        ledger.set_limits(Limits { endpoints: 5, ..LIMITS });
        assert!(ledger.take(Resource::Slices, &"b", slice(6, 100)), "it shrinks");
        assert!(!ledger.take(Resource::Slices, &"c", slice(1, 100)));
        ledger.remove(Resource::Slices, &"c");
        assert!(ledger.problem().is_none());
    }

    #[test]
    fn the_namespace_that_has_most_is_known() {
        let mut ledger = ledger();
        let [a, shop]: [Arc<str>; 2] = ["a".into(), "shop".into()];
        let mut put = |namespace, name: &str, bytes| {
            ledger.admit(Resource::Slices, (namespace, &name), slice(1, bytes))
        };
        assert_eq!(put(&a, "a1", 500), Ok(()));
        assert_eq!(put(&a, "a2", 400), Ok(()));
        assert_eq!(put(&shop, "s1", 100), Ok(()));
        assert_eq!(put(&shop, "s2", 100), Err(Limit::Bytes));
        let heaviest = |namespace, name: &str, bytes| {
            ledger.heaviest(Resource::Slices, Limit::Bytes, (namespace, &name), slice(1, bytes))
        };
        assert_eq!(heaviest("shop", "s2", 100), Some(Arc::clone(&a)));
        assert_eq!(heaviest("shop", "s2", 800), None, "it would have more");
        assert_eq!(heaviest("shop", "s1", 800), Some(Arc::clone(&a)), "instead of its 100");
        assert_eq!(heaviest("a", "a3", 1), None);
        assert_eq!(heaviest("a", "a2", 401), None);
        assert!(!ledger.has_freed());
        ledger.give_way(Resource::Slices, &"a2", Limit::Bytes);
        assert_eq!((ledger.left_out(), ledger.has_freed()), ([0, 1], false));
        assert_eq!(ledger.admit(Resource::Slices, (&shop, &"s2"), slice(1, 100)), Ok(()));
        ledger.remove(Resource::Slices, &"s2");
        assert!(ledger.has_freed(), "it may fit now");
    }

    #[test]
    fn a_list_begins_anew() {
        let mut ledger = ledger();
        assert!(ledger.take(Resource::Slices, &"a", slice(10, 100)));
        assert!(!ledger.take(Resource::Slices, &"b", slice(1, 100)));
        ledger.begin(Resource::Slices);
        assert!(ledger.problem().is_none());
        assert!(ledger.take(Resource::Slices, &"b", slice(10, 100)));
        ledger.note_left_out(Resource::Slices, 7);
        assert!(ledger.problem().is_none(), "the list comes next");
        ledger.begin(Resource::Slices);
        assert_eq!((ledger.left_out(), ledger.exceeded), ([0, 7], ("bytes", 1000)));
        let mut own = Ledger::new();
        assert!(own.take(Resource::Slices, &"a", slice(1_000_000, 1 << 40)));
    }

    #[test]
    fn each_part_of_an_object_weighs_about_what_it_takes() {
        let is_about = |weight, takes| assert!((takes..4 * takes).contains(&weight), "{weight}");
        let name: Arc<str> = "a-long-name".into();
        let port =
            SlicePort { name: Arc::clone(&name), ..fixture::slice("a", &[]).ports[0].clone() };
        let slice = |ports| SourceSlice { ports, ..fixture::slice("a", &[]) }.weight();
        let of_slice = slice(vec![port]) - slice(vec![]);
        is_about(of_slice, size_of::<SlicePort>() + name.len());
        let spec = |ports, labels| {
            let spec = ServiceSpec { ports, labels, ..fixture::spec() };
            let export = fixture::export("east", 1, spec);
            Exported { export, slices: vec![] }.weight()
        };
        let none = spec(vec![], BTreeMap::new());
        let of_service = spec(vec![fixture::port(&name, 80)], BTreeMap::new()) - none;
        is_about(of_service, size_of::<ServicePort>() + name.len());
        let of_label = spec(vec![], fixture::map(&[("key", &name)])) - none;
        is_about(of_label, 2 * size_of::<Arc<str>>() + "key".len() + name.len());
    }

    #[test]
    fn many_objects_that_are_left_out_take_no_memory() {
        let mut ledger = ledger();
        for number in 0..MOST_REMEMBERED + 10 {
            assert!(!ledger.take(Resource::Slices, &number, slice(11, 0)));
        }
        assert_eq!(ledger.left_out(), [0, MOST_REMEMBERED + 10]);
        assert_eq!(ledger.accounts[1].left_out.len(), MOST_REMEMBERED);
    }
}
