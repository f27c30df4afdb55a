//! The kind, flags and size of each pinned map. aya takes any map that is pinned under a name, and would read a map of
//! another shape as garbage.

use std::{io, path::Path};

use aya::maps::{MapInfo, MapType};
use mcs_common::{
    BUCKETS_PER_WORD,
    maps::{self, Entries, Kind, Map, Place},
};

use super::Setting;
use crate::core::{
    kernel::{
        bpf::{into_io, is_withheld},
        flows::FlowCapacity,
    },
    model::Capacity,
};

const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// What decides how large the maps are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes<'a> {
    pub(super) capacity: Capacity,
    pub(super) flows: FlowCapacity,
    pub(super) socket_slot_bits: u32,
    pub(super) of_features: &'a [Setting],
}

/// A map of a certain size.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapLayout {
    pub(super) map: &'static Map,
    pub(super) entries: u32,
}

impl<'a> Sizes<'a> {
    /// Sizes for this capacity, and the default size of all other maps.
    pub(super) fn of(capacity: Capacity) -> Self {
        let flows = FlowCapacity::default();
        Self { capacity, flows, socket_slot_bits: maps::SOCKET_SLOT_BITS, of_features: &[] }
    }

    /// The maps that are pinned in one place.
    pub(super) fn layouts(self, place: Place) -> impl Iterator<Item = MapLayout> + Clone + use<'a> {
        maps::of(place).map(move |map| MapLayout { map, entries: self.entries_of(map) })
    }

    fn entries_of(self, map: &Map) -> u32 {
        let of_feature = self.of_features.iter().rev().find_map(|setting| match setting {
            Setting::Entries(name, entries) if *name == map.name => Some(*entries),
            _ => None,
        });
        of_feature.unwrap_or_else(|| self.entries(map.entries))
    }

    /// Words of the address filter.
    pub(super) fn filter_words(self) -> u32 {
        self.entries(Entries::FilterWords)
    }

    fn entries(self, entries: Entries) -> u32 {
        let Self { capacity, flows, socket_slot_bits, .. } = self;
        match entries {
            Entries::Vips => capacity.vips,
            Entries::Frontends => capacity.frontends,
            Entries::States => capacity.state_entries(),
            Entries::SlotPairs => capacity.slot_entries() / 2,
            Entries::Backends => capacity.backend_entries(),
            Entries::Services => capacity.service_entries(),
            Entries::Clusters => capacity.cluster_entries(),
            Entries::FilterWords => capacity.hint_buckets().div_ceil(BUCKETS_PER_WORD),
            Entries::Flows => flows.entries(),
            Entries::SocketSlots => 1 << socket_slot_bits,
            Entries::SocketSlotPairs => 1 << (socket_slot_bits - 1),
            Entries::OfFeature => 1,
            Entries::Fragments => maps::fragments(u32::try_from(cpus()).unwrap_or(1)),
            Entries::Lru => maps::LRU_ENTRIES,
            Entries::Fixed(entries) => entries,
        }
    }
}

impl MapLayout {
    /// Whether the map that is pinned at `path` has this shape and size.
    pub(super) fn matches(&self, path: &Path) -> io::Result<bool> {
        let Some(found) = map_at(path)? else { return Ok(false) };
        let (kind, flags) = kernel_kind(self.map.kind);
        Ok(found.map_type().is_ok_and(|found| found == kind)
            && found.key_size() as usize == self.map.key
            && found.value_size() as usize == self.map.value
            && found.map_flags() == flags
            && found.max_entries() == self.entries)
    }

    /// Bytes that the map's entries take. Arrays keep each value at a multiple of 8.
    pub(super) fn bytes(&self) -> u64 {
        let key = if self.is_array() { 0 } else { self.map.key.next_multiple_of(8) };
        let copies = if self.map.kind == Kind::PerCpuArray { cpus() } else { 1 };
        u64::from(self.entries) * (key + copies * self.map.value.next_multiple_of(8)) as u64
    }

    /// Bytes that the entries of an array or hash map take in the kernel.
    pub(super) fn kernel_bytes(&self) -> u64 {
        /// A hash map's element besides its key and value (`htab_elem`, kernel/bpf/hashtab.c).
        const ELEMENT: u64 = 48;
        /// The head of a bucket. The kernel rounds the number of buckets up to a power of two: at most
        /// two for each element.
        const BUCKETS: u64 = 2 * 16;
        let overhead = if self.is_array() { 0 } else { ELEMENT + BUCKETS };
        self.bytes() + u64::from(self.entries) * overhead
    }

    const fn is_array(&self) -> bool {
        matches!(self.map.kind, Kind::Array | Kind::MappedArray | Kind::PerCpuArray)
    }
}

/// How many CPUs the kernel keeps values for. This cannot fail here: aya asks too before it makes a map.
fn cpus() -> usize {
    aya::util::nr_cpus().unwrap_or(1)
}

const fn kernel_kind(kind: Kind) -> (MapType, u32) {
    match kind {
        Kind::Hash => (MapType::Hash, 0),
        Kind::SparseHash => (MapType::Hash, BPF_F_NO_PREALLOC),
        Kind::LruHash => (MapType::LruHash, 0),
        Kind::Array => (MapType::Array, 0),
        Kind::MappedArray => (MapType::Array, BPF_F_MMAPABLE),
        Kind::PerCpuArray => (MapType::PerCpuArray, 0),
        Kind::SocketStorage => (MapType::SkStorage, BPF_F_NO_PREALLOC),
    }
}

/// The map that is pinned at `path`, or `None` if there is nothing or no map.
///
/// Sockets may depend on a map that the kernel does not show now: that is an error, and the pin stays.
fn map_at(path: &Path) -> io::Result<Option<MapInfo>> {
    match MapInfo::from_pin(path).map_err(into_io) {
        Err(error) if is_withheld(&error) => Err(error),
        found => Ok(found.ok()),
    }
}

/// The capacity of the config maps that are pinned in a directory; `None` if one is missing.
pub(super) fn capacity(directory: &Path) -> io::Result<Option<Capacity>> {
    let entries = |name| map_at(&directory.join(name)).map(|map| Some(map?.max_entries()));
    let (Some(vips), Some(frontends), Some(slot_pairs), Some(clusters), Some(services)) = (
        entries(maps::VIPS)?,
        entries(maps::FRONTENDS)?,
        entries(maps::SLOTS)?,
        entries(maps::CLUSTERS)?,
        entries(maps::SERVICES)?,
    ) else {
        return Ok(None);
    };
    Ok(Some(Capacity {
        vips,
        frontends,
        endpoints: Capacity::endpoints_of(slot_pairs.saturating_mul(2)),
        clusters: clusters / 2,
        imports: Capacity::imports_of(services),
    }))
}

/// The names of the maps that make the table of connected sockets.
pub(super) const SOCKET_SLOTS: [&str; 2] = [maps::SOCKET_TAGS, maps::SOCKET_CONNS];
