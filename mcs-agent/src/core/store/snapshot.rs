//! An immutable view of all objects, and which prefixes the addresses of their endpoints have.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use crate::core::model::{
    EndpointAddress, EndpointSlice, Kind, ObjectKey, ObjectRef, ServiceImport,
};

/// The version of an object in the store.
#[derive(Clone, Debug)]
pub(super) enum StoredObject {
    Import(Arc<ServiceImport>),
    Slice(Arc<EndpointSlice>),
    /// Why it cannot be read.
    Malformed(String),
}

impl StoredObject {
    fn problem(&self) -> Option<&str> {
        match self {
            Self::Malformed(message) => Some(message),
            Self::Import(_) | Self::Slice(_) => None,
        }
    }
}

/// Whether the rules have to evaluate an object again. Two versions of a slice that differ only in
/// their trigger time count as equal.
pub(super) fn is_changed(before: Option<&StoredObject>, now: Option<&StoredObject>) -> bool {
    use StoredObject::{Import, Malformed, Slice};
    let is_same = match (before, now) {
        (Some(Import(before)), Some(Import(now))) => before == now,
        (Some(Slice(before)), Some(Slice(now))) => {
            Arc::ptr_eq(before, now) || before.has_same_content(now)
        }
        (Some(Malformed(before)), Some(Malformed(now))) => before == now,
        (None, None) => true,
        _ => false,
    };
    !is_same
}

/// The slices of one import, sorted by name. They share its namespace. Most imports have few, for which a map would
/// take four times the memory.
type SlicesByName = Vec<Arc<EndpointSlice>>;

/// All objects at one moment. A clone shares them with the original.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    objects: Arc<BTreeMap<ObjectRef, StoredObject>>,
    /// The slices that can be read, by the import they belong to, whether it exists or not.
    by_import: Arc<BTreeMap<ObjectKey, Arc<SlicesByName>>>,
    prefixes: EndpointPrefixes,
}

impl Snapshot {
    /// Every ServiceImport that can be read, by namespace and name.
    pub fn imports(&self) -> impl Iterator<Item = &ServiceImport> {
        self.of_kind(Kind::ServiceImport).filter_map(|(_, object)| match object {
            StoredObject::Import(import) => Some(&**import),
            StoredObject::Slice(_) | StoredObject::Malformed(_) => None,
        })
    }

    /// A ServiceImport that can be read.
    pub fn import(&self, key: &ObjectKey) -> Option<&ServiceImport> {
        match self.objects.get(&ObjectRef { kind: Kind::ServiceImport, key: key.clone() })? {
            StoredObject::Import(import) => Some(import),
            StoredObject::Slice(_) | StoredObject::Malformed(_) => None,
        }
    }

    /// The slices of an import, by name.
    pub fn slices(&self, import: &ObjectKey) -> impl Iterator<Item = &EndpointSlice> {
        self.by_import.get(import).into_iter().flat_map(|slices| slices.iter().map(AsRef::as_ref))
    }

    /// A slice that can be read.
    pub fn slice(&self, key: &ObjectKey) -> Option<&EndpointSlice> {
        match self.objects.get(&ObjectRef { kind: Kind::EndpointSlice, key: key.clone() })? {
            StoredObject::Slice(slice) => Some(slice),
            StoredObject::Import(_) | StoredObject::Malformed(_) => None,
        }
    }

    /// Whether an endpoint of a slice that can be read can have the address.
    pub fn can_be_endpoint(&self, ip: IpAddr) -> bool {
        self.prefixes.has(ip)
    }

    /// Every object that cannot be read, with the reason.
    pub fn malformed(&self) -> impl Iterator<Item = (&ObjectRef, &str)> {
        self.objects.iter().filter_map(|(object, version)| Some((object, version.problem()?)))
    }

    /// Why an object cannot be read. `None` if it can be read or does not exist.
    pub fn problem(&self, object: &ObjectRef) -> Option<&str> {
        self.objects.get(object)?.problem()
    }

    /// Every object of a kind, whether it can be read or not.
    pub(super) fn references(&self, kind: Kind) -> Vec<ObjectRef> {
        self.of_kind(kind).map(|(object, _)| object.clone()).collect()
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &StoredObject)> {
        let first = ObjectRef { kind, key: ObjectKey::new("", "") };
        self.objects.range(first..).take_while(move |(object, _)| object.kind == kind)
    }

    pub(super) fn version(&self, object: &ObjectRef) -> Option<&StoredObject> {
        self.objects.get(object)
    }

    /// Replaces the version of an object, or removes it. Returns the version before.
    pub(super) fn set(
        &mut self,
        object: &ObjectRef,
        version: Option<StoredObject>,
    ) -> Option<StoredObject> {
        let slice = match &version {
            Some(StoredObject::Slice(slice)) => Some(Arc::clone(slice)),
            _ => None,
        };
        let objects = Arc::make_mut(&mut self.objects);
        let previous = match version {
            Some(version) => objects.insert(object.clone(), version),
            None => objects.remove(object),
        };
        let former = match &previous {
            Some(StoredObject::Slice(slice)) => Some(slice),
            _ => None,
        };
        self.prefixes.replace(former.map(AsRef::as_ref), slice.as_deref());
        if let Some(former) = former {
            self.unindex(former);
        }
        if let Some(slice) = slice {
            self.index(&slice);
        }
        previous
    }

    fn index(&mut self, slice: &Arc<EndpointSlice>) {
        let of_import = Arc::make_mut(&mut self.by_import).entry(slice.import()).or_default();
        let of_import = Arc::make_mut(of_import);
        match position(of_import, slice) {
            Ok(at) => of_import[at] = Arc::clone(slice),
            Err(at) => of_import.insert(at, Arc::clone(slice)),
        }
    }

    fn unindex(&mut self, slice: &EndpointSlice) {
        let by_import = Arc::make_mut(&mut self.by_import);
        if let Some(of_import) = by_import.get_mut(&slice.import()) {
            let slices = Arc::make_mut(of_import);
            if let Ok(at) = position(slices, slice) {
                slices.remove(at);
            }
            if slices.is_empty() {
                by_import.remove(&slice.import());
            }
        }
    }
}

/// The index of a slice in the sorted slices of its import, or where to insert it.
fn position(slices: &[Arc<EndpointSlice>], slice: &EndpointSlice) -> Result<usize, usize> {
    slices.binary_search_by(|one| one.key.name.cmp(&slice.key.name))
}

/// How many endpoints have each prefix. Those of a node share one, mostly.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointPrefixes(Arc<BTreeMap<IpAddr, u32>>);

impl EndpointPrefixes {
    /// Counts the endpoints of `now` instead of those of `before`.
    pub(super) fn replace(&mut self, before: Option<&EndpointSlice>, now: Option<&EndpointSlice>) {
        if prefixes(before).eq(prefixes(now)) {
            return;
        }
        let counts = Arc::make_mut(&mut self.0);
        for prefix in prefixes(now) {
            *counts.entry(prefix).or_default() += 1;
        }
        for prefix in prefixes(before) {
            if let Some(count) = counts.get_mut(&prefix) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&prefix);
                }
            }
        }
    }

    /// Whether an endpoint can have the address.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.0.contains_key(&prefix(ip))
    }
}

fn prefixes(slice: Option<&EndpointSlice>) -> impl Iterator<Item = IpAddr> {
    slice.into_iter().flat_map(|slice| &slice.endpoints).filter_map(|endpoint| {
        match &endpoint.address {
            EndpointAddress::Ip(ip) => Some(prefix(*ip)),
            EndpointAddress::Absent | EndpointAddress::Other(_) => None,
        }
    })
}

/// The first 24 bits of an IPv4 address, the first 64 of an IPv6 address.
fn prefix(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => (ip & std::net::Ipv4Addr::new(255, 255, 255, 0)).into(),
        IpAddr::V6(ip) => (ip & std::net::Ipv6Addr::from_bits(!0 << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::slice;

    #[test]
    fn an_endpoint_is_counted_until_the_last_of_its_prefix_is_gone() {
        let of = |addresses: &[&str]| {
            addresses.iter().fold(slice("shop/a", "web"), |slice, ip| slice.address(ip))
        };
        let mut known = EndpointPrefixes::default();
        let mut replace = |before: &[&str], now: &[&str]| {
            let (before, now) = (of(before), of(now));
            known.replace(Some(&before), Some(&now));
            ["10.1.0.9", "10.1.1.9", "fd00::1:9", "fd00:0:0:1::1"]
                .map(|ip| known.has(ip.parse().unwrap()))
        };
        let all = ["10.1.0.1", "10.1.0.2", "fd00::1", "web"];
        assert_eq!(replace(&[], &all), [true, false, true, false]);
        assert_eq!(replace(&all, &all[1..3]), [true, false, true, false]);
        assert_eq!(replace(&all[1..3], &["10.1.1.1"]), [false, true, false, false]);
        assert_eq!(replace(&["10.1.1.1"], &[]), [false; 4]);
    }
}
