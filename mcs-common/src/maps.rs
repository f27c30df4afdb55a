//! The names of the maps, which are also the names of their pins: `<bpffs>/mcs/config/<name>` for maps
//! that the agent writes, `<bpffs>/mcs/state/<name>` for maps that the programs write.

/// The entries of each LRU map whose size no flag sets.
pub const LRU_ENTRIES: u32 = 65_536;
/// The entries of [`FRAGMENTS`]: one for each fragmented datagram on its way.
pub const FRAGMENT_ENTRIES: u32 = 8_192;

/// The table of connected sockets has two to the power of this many slots. Tests make smaller ones.
pub const SOCKET_SLOT_BITS: u32 = 17;

/// Hash: [`Address`](crate::Address) -> a value of [`VipMode`](crate::VipMode).
pub const VIPS: &str = "vips";
/// Hash: [`FrontendKey`](crate::FrontendKey) -> index into [`STATES`].
pub const FRONTENDS: &str = "frontends";
/// Array of [`FrontendState`](crate::FrontendState). Index 0 is never used.
pub const STATES: &str = "states";
/// Array of [`SlotPair`](crate::SlotPair): value `i` has slots `2 * i` and `2 * i + 1`, each a backend id.
pub const SLOTS: &str = "slots";
/// Array of [`BackendRecord`](crate::BackendRecord). Id 0 is never used.
pub const BACKENDS: &str = "backends";
/// Array of [`ServiceRecord`](crate::ServiceRecord). Index 0 is never used.
pub const SERVICES: &str = "services";
/// Array of [`ClusterRecord`](crate::ClusterRecord). Index 0 is never used.
pub const CLUSTERS: &str = "clusters";
/// Array of 64-bit words with [`HINTS_PER_WORD`](crate::HINTS_PER_WORD) buckets each: the
/// [`Hint`](crate::Hint) of every [`HintBucket`](crate::HintBucket). Pinned as `<bpffs>/mcs/hints`, apart from the
/// config maps: versions without it do not know that it belongs to them.
pub const HINTS: &str = "hints";
/// Array of one [`RunRecord`](crate::RunRecord), pinned as `<bpffs>/mcs/run`.
pub const RUN: &str = "run";
/// Array of one [`Liveness`](crate::Liveness), pinned as `<bpffs>/mcs/alive`.
pub const ALIVE: &str = "alive";

/// LRU hash: [`AffinityKey`](crate::AffinityKey) -> [`Affinity`](crate::Affinity).
pub const AFFINITY: &str = "affinity";
/// LRU hash: [`PinKey`](crate::PinKey) -> [`BackendRef`](crate::BackendRef).
pub const UDP_PINS: &str = "udp_pins";
/// LRU hash: [`ReverseKey`](crate::ReverseKey) -> [`ReverseValue`](crate::ReverseValue).
pub const UDP_REVERSE: &str = "udp_reverse";
/// LRU hash: [`ReverseKey`](crate::ReverseKey) -> [`ConnectedValue`](crate::ConnectedValue).
pub const UDP_CONNECTED: &str = "udp_connected";
/// Socket storage: [`SocketState`](crate::SocketState).
pub const SOCKETS: &str = "sockets";
/// Socket storage: [`SentPairs`](crate::SentPairs).
pub const SENT_PAIRS: &str = "sent_pairs";
/// Array of [`TagPair`](crate::TagPair), by [`SlotPlace::pair`](crate::SlotPlace::pair).
pub const SOCKET_TAGS: &str = "socket_tags";
/// Array of [`SlotConnection`](crate::SlotConnection), by [`SlotPlace::slot`](crate::SlotPlace::slot).
pub const SOCKET_CONNS: &str = "socket_conns";
/// Per-CPU array of `u64`, indexed by [`Counter`](crate::Counter).
pub const COUNTERS: &str = "counters";
/// Array of one `u32`: 1 after socket storage could not be allocated for a socket of this node, else 0.
pub const STORAGE_FALLBACK: &str = "storage_fallback";
/// LRU hash: [`Tuple`](crate::Tuple) -> [`Flow`](crate::Flow).
pub const FLOWS: &str = "flows";
/// Array of one `u32`: a value of [`FlowsUsed`](crate::FlowsUsed).
pub const FLOWS_USED: &str = "flows_used";
/// Array of one [`FlowEvictions`](crate::FlowEvictions).
pub const FLOW_EVICTIONS: &str = "flow_evictions";
/// LRU hash: [`FragmentKey`](crate::FragmentKey) -> [`Fragment`](crate::Fragment).
pub const FRAGMENTS: &str = "fragments";
/// LRU hash: [`ClientKey`](crate::ClientKey) -> [`Affinity`](crate::Affinity).
pub const CLIENT_AFFINITY: &str = "client_affinity";
