//! What each pinned map must look like. aya adopts whatever is pinned under a name; a map of
//! another shape would be read as garbage.

use std::path::Path;

use aya::maps::{MapInfo, MapType};
use mcs_common::{
    Address, Affinity, AffinityKey, BackendRecord, BackendRef, ClientKey, ClusterRecord,
    ConnectedValue, Counter, Flow, FlowEvictions, Fragment, FragmentKey, FrontendKey,
    FrontendState, HINTS_PER_WORD, Liveness, PinKey, ReverseKey, ReverseValue, RunRecord,
    SentPairs, ServiceRecord, SlotConnection, SlotPair, SocketState, TagPair, Tuple, maps,
};

use crate::{flows::FlowCapacity, model::Capacity};

const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The shape of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapLayout {
    pub(super) name: &'static str,
    kind: MapType,
    key: usize,
    value: usize,
    pub(super) entries: u32,
    flags: u32,
}

impl MapLayout {
    /// Whether the map that is pinned at `path` has this shape.
    pub(super) fn matches(&self, path: &Path) -> bool {
        MapInfo::from_pin(path)
            .is_ok_and(|found| self.holds_the_same(&found) && found.max_entries() == self.entries)
    }

    /// Whether the map that is pinned at `path` has this shape, but another size.
    pub(super) fn differs_in_size(&self, path: &Path) -> bool {
        MapInfo::from_pin(path)
            .is_ok_and(|found| self.holds_the_same(&found) && found.max_entries() != self.entries)
    }

    fn holds_the_same(&self, found: &MapInfo) -> bool {
        found.map_type().is_ok_and(|kind| kind == self.kind)
            && found.key_size() as usize == self.key
            && found.value_size() as usize == self.value
            && found.map_flags() == self.flags
    }

    /// Bytes that the map's entries take. Arrays keep each value at a multiple of 8.
    pub(super) fn bytes(&self) -> u64 {
        let key = if self.kind == MapType::Array { 0 } else { self.key.next_multiple_of(8) };
        u64::from(self.entries) * (key + self.value.next_multiple_of(8)) as u64
    }

    /// Bytes that the entries of an array or hash map take in the kernel.
    pub(super) fn kernel_bytes(&self) -> u64 {
        /// A hash map's element besides its key and value (`htab_elem`, kernel/bpf/hashtab.c).
        const ELEMENT: u64 = 48;
        /// The head of a bucket. The kernel rounds the number of buckets up to a power of two: at most
        /// two for each element.
        const BUCKETS: u64 = 2 * 16;
        let beside = if self.kind == MapType::Array { 0 } else { ELEMENT + BUCKETS };
        self.bytes() + u64::from(self.entries) * beside
    }
}

const fn array<T>(name: &'static str, entries: u32) -> MapLayout {
    MapLayout {
        name,
        kind: MapType::Array,
        key: 4,
        value: size_of::<T>(),
        entries,
        flags: BPF_F_MMAPABLE,
    }
}

const fn hash<K, V>(name: &'static str, kind: MapType, entries: u32) -> MapLayout {
    MapLayout { name, kind, key: size_of::<K>(), value: size_of::<V>(), entries, flags: 0 }
}

const fn storage<T>(name: &'static str) -> MapLayout {
    MapLayout {
        name,
        kind: MapType::SkStorage,
        key: 4,
        value: size_of::<T>(),
        entries: 0,
        flags: BPF_F_NO_PREALLOC,
    }
}

/// The names of the maps that the agent writes.
pub const CONFIG_NAMES: [&str; 7] = [
    maps::VIPS,
    maps::FRONTENDS,
    maps::STATES,
    maps::SLOTS,
    maps::BACKENDS,
    maps::SERVICES,
    maps::CLUSTERS,
];

/// The maps that the agent writes.
pub(super) fn config(capacity: Capacity) -> [MapLayout; CONFIG_NAMES.len()] {
    [
        hash::<Address, u32>(maps::VIPS, MapType::Hash, capacity.frontends),
        hash::<FrontendKey, u32>(maps::FRONTENDS, MapType::Hash, capacity.frontends),
        array::<FrontendState>(maps::STATES, capacity.state_entries()),
        array::<SlotPair>(maps::SLOTS, capacity.slot_entries() / 2),
        array::<BackendRecord>(maps::BACKENDS, capacity.backend_entries()),
        array::<ServiceRecord>(maps::SERVICES, capacity.service_entries()),
        array::<ClusterRecord>(maps::CLUSTERS, capacity.cluster_entries()),
    ]
}

/// The map that says which addresses may be VIPs or backends.
pub(super) fn hints(capacity: Capacity) -> MapLayout {
    array::<u64>(maps::HINTS, capacity.hint_buckets().div_ceil(HINTS_PER_WORD))
}

/// The capacity that config maps of this shape, and of these sizes, are made for. `None` if one is
/// missing.
pub(super) fn capacity(directory: &Path) -> Option<Capacity> {
    let entries = |name| Some(MapInfo::from_pin(directory.join(name)).ok()?.max_entries());
    Some(Capacity {
        frontends: entries(maps::FRONTENDS)?,
        endpoints: Capacity::endpoints_of(entries(maps::SLOTS)?.saturating_mul(2)),
        clusters: entries(maps::CLUSTERS)? / 2,
        imports: Capacity::imports_of(entries(maps::SERVICES)?),
    })
}

/// The map that says who holds the directory.
pub(super) fn run() -> MapLayout {
    array::<RunRecord>(maps::RUN, 1)
}

/// The map with the agent's sign of life.
pub(super) fn alive() -> MapLayout {
    array::<Liveness>(maps::ALIVE, 1)
}

/// The names of the maps that make the table of connected sockets.
pub(super) const SOCKET_SLOTS: [&str; 2] = [maps::SOCKET_TAGS, maps::SOCKET_CONNS];

/// The names of the maps that the programs write.
pub(super) const STATE_NAMES: [&str; 15] = [
    maps::AFFINITY,
    maps::UDP_PINS,
    maps::UDP_REVERSE,
    maps::UDP_CONNECTED,
    maps::SOCKETS,
    maps::SENT_PAIRS,
    maps::SOCKET_TAGS,
    maps::SOCKET_CONNS,
    maps::COUNTERS,
    maps::STORAGE_FALLBACK,
    maps::FLOWS,
    maps::FLOWS_USED,
    maps::FLOW_EVICTIONS,
    maps::FRAGMENTS,
    maps::CLIENT_AFFINITY,
];

/// The maps that the programs write.
pub(super) fn state(flows: FlowCapacity, socket_slot_bits: u32) -> [MapLayout; STATE_NAMES.len()] {
    #[expect(clippy::cast_possible_truncation, reason = "a handful")]
    const COUNTERS: u32 = Counter::ALL.len() as u32;
    [
        hash::<AffinityKey, Affinity>(maps::AFFINITY, MapType::LruHash, maps::LRU_ENTRIES),
        hash::<PinKey, BackendRef>(maps::UDP_PINS, MapType::LruHash, maps::LRU_ENTRIES),
        hash::<ReverseKey, ReverseValue>(maps::UDP_REVERSE, MapType::LruHash, maps::LRU_ENTRIES),
        hash::<ReverseKey, ConnectedValue>(
            maps::UDP_CONNECTED,
            MapType::LruHash,
            maps::LRU_ENTRIES,
        ),
        storage::<SocketState>(maps::SOCKETS),
        storage::<SentPairs>(maps::SENT_PAIRS),
        array::<TagPair>(maps::SOCKET_TAGS, 1 << (socket_slot_bits - 1)),
        array::<SlotConnection>(maps::SOCKET_CONNS, 1 << socket_slot_bits),
        MapLayout {
            kind: MapType::PerCpuArray,
            flags: 0,
            ..array::<u64>(maps::COUNTERS, COUNTERS)
        },
        MapLayout { flags: 0, ..array::<u32>(maps::STORAGE_FALLBACK, 1) },
        hash::<Tuple, Flow>(maps::FLOWS, MapType::LruHash, flows.entries()),
        array::<u32>(maps::FLOWS_USED, 1),
        array::<FlowEvictions>(maps::FLOW_EVICTIONS, 1),
        hash::<FragmentKey, Fragment>(maps::FRAGMENTS, MapType::LruHash, maps::FRAGMENT_ENTRIES),
        hash::<ClientKey, Affinity>(maps::CLIENT_AFFINITY, MapType::LruHash, maps::LRU_ENTRIES),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets live longer than agents, and their storage can neither be listed nor converted. A version that has to
    /// store more adds a map of its own.
    #[test]
    fn what_programs_remember_keeps_its_shape() {
        let state = state(FlowCapacity::default(), maps::SOCKET_SLOT_BITS);
        let shapes = state.map(|map| (map.name, map.kind, map.key, map.value));
        let expected = [
            ("affinity", MapType::LruHash, 16, 16),
            ("udp_pins", MapType::LruHash, 16, 8),
            ("udp_reverse", MapType::LruHash, 32, 24),
            ("udp_connected", MapType::LruHash, 32, 32),
            ("sockets", MapType::SkStorage, 4, 120),
            ("sent_pairs", MapType::SkStorage, 4, 96),
            ("socket_tags", MapType::Array, 4, 8),
            ("socket_conns", MapType::Array, 4, 64),
            ("counters", MapType::PerCpuArray, 4, 8),
            ("storage_fallback", MapType::Array, 4, 4),
            ("flows", MapType::LruHash, 48, 80),
            ("flows_used", MapType::Array, 4, 4),
            ("flow_evictions", MapType::Array, 4, 24),
            ("fragments", MapType::LruHash, 48, 64),
            ("client_affinity", MapType::LruHash, 24, 16),
        ];
        assert_eq!(shapes, expected);
    }
}
