//! Every pinned map: its name, place, kind, types and size. The statics of the programs, the layouts that the agent
//! checks, the removal of pins and the table of README.md follow from [`each_map`](crate::each_map).

/// The entries of each LRU map whose size no flag sets.
pub const LRU_ENTRIES: u32 = 65_536;

/// The table of connected sockets has two to the power of this many slots. Tests make smaller ones.
pub const SOCKET_SLOT_BITS: u32 = 17;

/// Calls a macro with a row for each pinned map, in the order in which the agent checks them:
///
/// ```text
/// NAME "name" Place Kind[types] Entries;
/// ```
///
/// A [`Kind::Hash`], [`Kind::SparseHash`] and [`Kind::LruHash`] have the types of their key and value, all others that of their value.
#[macro_export]
macro_rules! each_map {
    ($then:ident) => {
        $then! {
            /// The mode of each VIP, a value of [`VipMode`](crate::VipMode).
            VIPS "vips" Config Hash[$crate::Address, u32] Vips;
            /// Indices into [`STATES`].
            FRONTENDS "frontends" Config Hash[$crate::FrontendKey, u32] Frontends;
            /// Frontends by index. Index 0 is never used.
            STATES "states" Config MappedArray[$crate::FrontendState] States;
            /// Value `i` has slots `2 * i` and `2 * i + 1`, each a backend id.
            SLOTS "slots" Config MappedArray[$crate::SlotPair] SlotPairs;
            /// Backends by id. Id 0 is never used.
            BACKENDS "backends" Config MappedArray[$crate::BackendRecord] Backends;
            /// The names of imports. Index 0 is never used. No program reads it: the command line and bpftool do.
            SERVICES "services" Config MappedArray[$crate::ServiceRecord] Services;
            /// The names of source clusters. Index 0 is never used. No program reads it.
            CLUSTERS "clusters" Config MappedArray[$crate::ClusterRecord] Clusters;

            /// Words with [`BUCKETS_PER_WORD`](crate::BUCKETS_PER_WORD) buckets each: the [`AddressKinds`](crate::AddressKinds) of each
            /// [`FilterBucket`](crate::FilterBucket). It is apart from the config maps: versions without it do not know
            /// that it belongs to them.
            HINTS "hints" Root MappedArray[u64] FilterWords;
            /// Which agent holds the directory. No program reads it.
            RUN "run" Root MappedArray[$crate::RunRecord] Fixed(1);
            /// The agent's sign of life.
            ALIVE "alive" Root MappedArray[$crate::Liveness] Fixed(1);

            /// The backends of clients by socket.
            AFFINITY "affinity" State LruHash[$crate::AffinityKey, $crate::Affinity] Lru;
            /// The backends that unconnected UDP sockets have, and which sockets with several were closed.
            UDP_PINS "udp_pins" State LruHash[$crate::PinKey, $crate::BackendRef] Lru;
            /// The VIPs that UDP sockets used.
            UDP_REVERSE "udp_reverse" State LruHash[$crate::ReverseKey, $crate::ReverseValue] Lru;
            /// The VIPs that sockets without slot are connected to, of UDP and of TCP.
            UDP_CONNECTED "udp_connected" State LruHash[$crate::ReverseKey, $crate::ConnectedValue] Lru;
            /// What a socket used, for sockets without slot.
            SOCKETS "sockets" State SocketStorage[$crate::SocketState] Fixed(0);
            /// The latest VIPs of an unconnected UDP socket.
            SENT_PAIRS "sent_pairs" State SocketStorage[$crate::SentPairs] Fixed(0);
            /// The tags of slots, by [`SocketSlotPlace::pair`](crate::SocketSlotPlace::pair).
            SOCKET_TAGS "socket_tags" State MappedArray[$crate::TagPair] SocketSlotPairs;
            /// The connections of slots, by [`SocketSlotPlace::slot`](crate::SocketSlotPlace::slot).
            SOCKET_CONNS "socket_conns" State MappedArray[$crate::SocketSlot] SocketSlots;
            /// Indexed by [`Counter`](crate::Counter).
            COUNTERS "counters" State PerCpuArray[u64] Fixed($crate::Counter::ALL.len() as u32);
            /// Counts by import and source cluster. Row 0 has those of all imports without a row of their own.
            FIGURES "figures" State PerCpuArray[$crate::FigureRow] OfFeature;
            /// The row of each VIP, for refusals. The agent adds and removes entries.
            FIGURE_VIPS "figure_vips" State SparseHash[$crate::Address, u32] OfFeature;
            /// 1 after socket storage could not be allocated for a socket of this node, else 0.
            STORAGE_FALLBACK "storage_fallback" State Array[u32] Fixed(1);
            /// The flows of packets.
            FLOWS "flows" State LruHash[$crate::Tuple, $crate::Flow] Flows;
            /// A value of [`FlowsUsed`](crate::FlowsUsed).
            FLOWS_USED "flows_used" State MappedArray[u32] Fixed(1);
            /// When the kernel evicted flows.
            FLOW_EVICTIONS "flow_evictions" State MappedArray[$crate::FlowEvictions] Fixed(1);
            /// The fragmented datagrams on their way.
            FRAGMENTS "fragments" State LruHash[$crate::FragmentKey, $crate::Fragment] Fragments;
            /// The backends of clients by address.
            CLIENT_AFFINITY "client_affinity" State LruHash[$crate::ClientKey, $crate::Affinity] Lru;
            /// Whether the backends of services with passive health answer. The agent adds and removes entries.
            HEALTH "health" State SparseHash[$crate::BackendRef, $crate::HealthRecord] Fixed(8_192);
        }
    };
}

/// A pinned map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    /// Its name, which is also that of its pin.
    pub name: &'static str,
    /// The directory of its pin.
    pub place: Place,
    /// Its kind.
    pub kind: Kind,
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// How many entries it has.
    pub entries: Entries,
}

/// Where a map is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// `<bpffs>/mcs/config`: the agent writes it.
    Config,
    /// `<bpffs>/mcs/state`: the programs write it.
    State,
    /// `<bpffs>/mcs`.
    Root,
}

/// The kinds of maps (`enum bpf_map_type`, include/uapi/linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `BPF_MAP_TYPE_HASH`.
    Hash,
    /// The same with `BPF_F_NO_PREALLOC`: an entry takes memory only while it is there.
    SparseHash,
    /// `BPF_MAP_TYPE_LRU_HASH`.
    LruHash,
    /// `BPF_MAP_TYPE_ARRAY`.
    Array,
    /// `BPF_MAP_TYPE_ARRAY` with `BPF_F_MMAPABLE`.
    MappedArray,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`.
    PerCpuArray,
    /// `BPF_MAP_TYPE_SK_STORAGE`, with `BPF_F_NO_PREALLOC`.
    SocketStorage,
}

/// How many entries a map has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entries {
    /// One for each VIP.
    Vips,
    /// One for each frontend.
    Frontends,
    /// One for each index of a frontend.
    States,
    /// One for two slots.
    SlotPairs,
    /// One for each id of a backend.
    Backends,
    /// One for each index of an import.
    Services,
    /// One for each index of a source cluster.
    Clusters,
    /// The words of the address filter.
    FilterWords,
    /// The size of the flow table.
    Flows,
    /// One for each slot of a socket.
    SocketSlots,
    /// One for two slots of sockets.
    SocketSlotPairs,
    /// As many as the feature wants that the map is for. Each agent begins with a new map.
    OfFeature,
    /// [`fragments`].
    Fragments,
    /// [`LRU_ENTRIES`].
    Lru,
    /// This many.
    Fixed(u32),
}

/// The entries of [`FRAGMENTS`] on a node with so many CPUs. Each CPU takes up to 128 free entries for itself
/// (`LOCAL_FREE_TARGET`, `kernel/bpf/bpf_lru_list.c`); one that finds none reuses its newest.
#[must_use]
pub const fn fragments(cpus: u32) -> u32 {
    let (least, of_all) = (8_192, 256 * cpus);
    if of_all > least { of_all } else { least }
}

impl Entries {
    /// The number in the object file. The agent sets another one where the capacity or a flag decides.
    pub const fn declared(self) -> usize {
        match self {
            Self::Fixed(entries) => entries as usize,
            Self::Lru | Self::Flows => LRU_ENTRIES as usize,
            Self::Fragments => fragments(1) as usize,
            Self::SocketSlots => 1 << SOCKET_SLOT_BITS,
            Self::SocketSlotPairs => 1 << (SOCKET_SLOT_BITS - 1),
            _ => 1,
        }
    }
}

macro_rules! describe {
    ($(
        $(#[doc = $doc:literal])+
        $map:ident $name:literal $place:ident $kind:ident[$($type:ty),+] $entries:ident $(($number:expr))?;
    )+) => {
        $($(#[doc = $doc])+ pub const $map: &str = $name;)+

        /// Every pinned map.
        #[expect(clippy::cast_possible_truncation, reason = "a handful of counters")]
        pub const ALL: &[Map] = &[$(
            map($name, Place::$place, Kind::$kind, &[$(size_of::<$type>()),+], Entries::$entries $(($number))?),
        )+];
    };
}
each_map!(describe);

/// The maps that are pinned in one place.
pub fn of(place: Place) -> impl Iterator<Item = &'static Map> + Clone {
    ALL.iter().filter(move |map| map.place == place)
}

/// `sizes` are those of the types in the row.
const fn map(
    name: &'static str,
    place: Place,
    kind: Kind,
    sizes: &[usize],
    entries: Entries,
) -> Map {
    let (key, value) = match *sizes {
        [key, value] => (key, value),
        [value] => (4, value),
        _ => panic!("a key and a value, or a value"),
    };
    Map { name, place, kind, key, value, entries }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{format, vec::Vec};

    use super::*;

    #[test]
    fn no_cpu_is_without_free_entries_for_fragments() {
        assert_eq!([1, 32, 33, 512].map(fragments), [8_192, 8_192, 8_448, 131_072]);
    }

    #[test]
    fn the_document_has_every_map() {
        let document = include_str!("../README.md");
        let first_cells = document.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells: Vec<&str> = first_cells.filter_map(|row| row.split(" |").next()).collect();
        for map in ALL {
            let pin = match map.place {
                Place::Config => format!("config/{}`", map.name),
                Place::State => format!("state/{}`", map.name),
                Place::Root => format!("{}`", map.name),
            };
            let is_named = |cell: &&str| cell.split(", `").any(|name| *name == pin);
            assert_eq!(cells.iter().filter(|cell| is_named(cell)).count(), 1, "{pin}");
        }
    }

    /// Sockets live longer than agents, and their storage can neither be listed nor converted. A version that has to
    /// store more adds a map of its own.
    #[test]
    fn what_programs_remember_keeps_its_shape() {
        let shapes = of(Place::State).map(|map| (map.name, map.kind, map.key, map.value));
        let expected = [
            ("affinity", Kind::LruHash, 16, 16),
            ("udp_pins", Kind::LruHash, 16, 8),
            ("udp_reverse", Kind::LruHash, 32, 24),
            ("udp_connected", Kind::LruHash, 32, 32),
            ("sockets", Kind::SocketStorage, 4, 120),
            ("sent_pairs", Kind::SocketStorage, 4, 96),
            ("socket_tags", Kind::MappedArray, 4, 8),
            ("socket_conns", Kind::MappedArray, 4, 64),
            ("counters", Kind::PerCpuArray, 4, 8),
            ("figures", Kind::PerCpuArray, 4, 128),
            ("figure_vips", Kind::SparseHash, 16, 4),
            ("storage_fallback", Kind::Array, 4, 4),
            ("flows", Kind::LruHash, 48, 80),
            ("flows_used", Kind::MappedArray, 4, 4),
            ("flow_evictions", Kind::MappedArray, 4, 24),
            ("fragments", Kind::LruHash, 48, 64),
            ("client_affinity", Kind::LruHash, 24, 16),
            // Each agent begins with an empty one.
            ("health", Kind::SparseHash, 8, 144),
        ];
        assert!(shapes.eq(expected));
    }
}
