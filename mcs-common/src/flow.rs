//! Flows and fragments of the packet path: keys and values of the maps `flows` and `fragments`.

use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef};

const SECOND_NS: u64 = 1_000_000_000;

/// Both ends of a packet as its headers name them, and the client's device. Because of the device, a pod
/// with a forged or reused address does not share another pod's flows.
#[derive(Clone, Copy, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Tuple {
    /// The source address.
    pub src: Address,
    /// The destination address.
    pub dst: Address,
    /// The source port in host order.
    pub src_port: u16,
    /// The destination port in host order.
    pub dst_port: u16,
    /// An IP protocol number (6 TCP, 17 UDP).
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
    /// Zero.
    pub pad2: u16,
    /// Interface index of the client's device on this node.
    pub device: u32,
    /// Zero.
    pub pad3: u32,
}

const _: () = assert!(size_of::<Tuple>() == 48);
crate::pod!(Tuple);
crate::eq_by_words!(Tuple, 6);

impl Tuple {
    /// A tuple with its padding zeroed.
    #[inline(always)]
    #[must_use]
    pub const fn new(
        src: Address,
        src_port: u16,
        dst: Address,
        dst_port: u16,
        protocol: u8,
        device: u32,
    ) -> Self {
        Self { src, dst, src_port, dst_port, protocol, pad: 0, pad2: 0, device, pad3: 0 }
    }

    /// The tuple of a packet in the opposite direction.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self::new(self.dst, self.dst_port, self.src, self.src_port, self.protocol, self.device)
    }

    /// A hash of the tuple without its device. A flow whose entries were evicted gets the same backend again
    /// if [`pick`] uses this number and the frontend's backends are the same.
    ///
    /// [`pick`]: crate::select::pick
    #[inline(always)]
    #[must_use]
    pub fn short_hash(&self) -> u32 {
        let [ends @ .., _]: [u64; 6] = bytemuck::cast(*self);
        short_hash(&ends)
    }
}

impl Address {
    /// A hash of a client address and a frontend's index, for session affinity.
    #[inline(always)]
    #[must_use]
    pub fn short_hash(&self, frontend: u32) -> u32 {
        let [high, low]: [u64; 2] = bytemuck::cast(*self);
        short_hash(&[high, low, u64::from(frontend)])
    }
}

/// A multiplicative hash with the multiplier and the final mixing of `SplitMix64`.
#[inline(always)]
fn short_hash<const N: usize>(words: &[u64; N]) -> u32 {
    let mut hash = 0_u64;
    let mut word = 0;
    while word < N {
        hash = (hash ^ words[word]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
        word += 1;
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash >> 32) as u32
}

/// Bits of [`Flow::flags`].
pub struct FlowFlags;

impl FlowFlags {
    /// The entry translates replies. Entries without this bit translate the client's packets.
    pub const REPLY: u32 = 1;
    /// Client and backend are the same pod. Its packets leave by the device they came from.
    pub const HAIRPIN: u32 = 2;
    /// The connection began before the agent served the VIP, and its former server continues to serve it; or it is a direct
    /// connection to a backend. The entry's [`Flow::to`] is its key: the packets stay as they are.
    pub const PASSED: u32 = 4;
}

/// Bits of [`Flow::seen`]: flags of the TCP header, and [`Seen::ANY`].
pub struct Seen;

impl Seen {
    /// The sender has closed.
    pub const FIN: u32 = 0x01;
    /// The sender has asked for a connection.
    pub const SYN: u32 = 0x02;
    /// The sender has reset the connection.
    pub const RST: u32 = 0x04;
    /// The sender has acknowledged data.
    pub const ACK: u32 = 0x10;
    /// There was a packet, of any protocol.
    pub const ANY: u32 = 0x100;

    /// The bits after another packet with these TCP flags (0 for UDP). A sender that continues after its
    /// reset has not closed the connection, so the bit of the reset is cleared. A SYN begins another connection,
    /// so the bit of the former connection's FIN is cleared.
    #[inline(always)]
    #[must_use]
    pub const fn after(seen: u32, flags: u32) -> u32 {
        let ended = if flags & Self::SYN != 0 {
            Self::FIN
        } else if flags & Self::RST == 0 {
            Self::RST
        } else {
            0
        };
        (seen & !ended) | Self::ANY | (flags & (Self::FIN | Self::SYN | Self::RST | Self::ACK))
    }
}

/// Value of the LRU map `flows`, under the [`Tuple`] of the packets that it translates. A flow has two
/// entries. The key of the entry for replies is `to.reversed()` of the client's entry, and its `to` is
/// the client's key reversed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Flow {
    /// The ends of a packet after translation.
    pub to: Tuple,
    /// The flow's backend.
    pub chosen: BackendRef,
    /// Index into `states`.
    pub frontend: u32,
    /// Bits of [`FlowFlags`].
    pub flags: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the latest packet of this direction, or at the entry's creation.
    /// It is updated before it is [`Flow::TOUCH_NS`] old.
    pub last_seen_ns: u64,
    /// Bits of [`Seen`], of all packets of this direction.
    pub seen: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Flow>() == 80);
crate::pod!(Flow);

impl Flow {
    /// How much [`Flow::last_seen_ns`] may be out of date, in nanoseconds.
    pub const TOUCH_NS: u64 = SECOND_NS / 4;
    /// The most that the programs' clock is late, in nanoseconds: it shows the latest tick, and a kernel has at least
    /// 100 ticks a second (`CONFIG_HZ`).
    pub const TICK_NS: u64 = SECOND_NS / 100;

    /// Whether a packet updates [`Flow::last_seen_ns`]. A packet up to a tick later may still find the time of this
    /// packet.
    #[inline(always)]
    #[must_use]
    pub const fn is_outdated(last_seen_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(last_seen_ns) >= Self::TOUCH_NS - Self::TICK_NS
    }

    /// Whether this entry translates replies.
    #[inline(always)]
    #[must_use]
    pub const fn is_reply(&self) -> bool {
        self.flags & FlowFlags::REPLY != 0
    }
}

/// The state of a flow, derived from the packets of both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum FlowState {
    /// There was no answer yet.
    Unreplied,
    /// There was an answer, and the protocol is not TCP.
    Replied,
    /// TCP: there was an answer, and no side has closed.
    Established,
    /// TCP: one side has closed.
    Closing,
    /// TCP: both sides have closed.
    Closed,
    /// TCP: one side has reset the connection.
    Reset,
}

impl FlowState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Unreplied,
        Self::Replied,
        Self::Established,
        Self::Closing,
        Self::Closed,
        Self::Reset,
    ];

    /// The state of a flow of this protocol from [`Flow::seen`] of its two entries (0 for a missing one).
    #[inline(always)]
    #[must_use]
    pub const fn of(protocol: u8, client_seen: u32, reply_seen: u32) -> Self {
        const TCP: u8 = 6;
        if protocol != TCP {
            return if reply_seen == 0 { Self::Unreplied } else { Self::Replied };
        }
        if (client_seen | reply_seen) & Seen::RST != 0 {
            Self::Reset
        } else if client_seen & reply_seen & Seen::FIN != 0 {
            Self::Closed
        } else if (client_seen | reply_seen) & Seen::FIN != 0 {
            Self::Closing
        } else if reply_seen == 0 {
            Self::Unreplied
        } else {
            Self::Established
        }
    }

    /// The idle time after which a flow in this state is deleted, in nanoseconds.
    ///
    /// Unreplied and replied UDP, unanswered TCP, closed and reset TCP have the timeouts of the kernel's
    /// connection tracking (`nf_conntrack_udp_timeout` 30 s and `_stream` 120 s, `nf_conntrack_tcp_timeout_syn_sent`
    /// 120 s, `_time_wait` 120 s, `_close` 10 s: Documentation/networking/nf_conntrack-sysctl.rst).
    /// Established and half-closed TCP have the timeouts of RFC 5382, REQ-5: 2 hours 4 minutes, and 4 minutes.
    #[inline(always)]
    #[must_use]
    pub const fn timeout_ns(self, protocol: u8) -> u64 {
        const UDP: u8 = 17;
        let seconds = match self {
            Self::Unreplied if protocol == UDP => 30,
            Self::Unreplied | Self::Replied | Self::Closed => 120,
            Self::Established => 7440,
            Self::Closing => 240,
            Self::Reset => 10,
        };
        seconds * SECOND_NS
    }

    /// Whether a SYN begins a new connection. (Otherwise it is a repetition.)
    #[inline(always)]
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Reset)
    }

    /// The name that the command line and the metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreplied => "unreplied",
            Self::Replied => "replied",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Reset => "reset",
        }
    }
}

/// Values of the array `flows_used`: whether programs must look up packets to pods, and direct SYNs, in `flows`.
pub struct FlowsUsed;

impl FlowsUsed {
    /// There is no flow.
    pub const NO: u32 = 0;
    /// There may be flows. A program writes it before it inserts a flow.
    pub const YES: u32 = 1;
    /// User space found no flow and searches a second time. Programs treat this as [`FlowsUsed::YES`].
    pub const ENDING: u32 = 2;
}

/// Value of the array `flow_evictions`: whether the kernel may have evicted flows. A packet of a TCP connection
/// without a flow then belongs to an evicted flow, and otherwise to the former server of the VIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FlowEvictions {
    /// The most entries that `flows` may have. Programs add the entries that they make, at once, and each
    /// sweep sets the number that it counts.
    pub entries: u64,
    /// The kernel evicts no entry while the table has at most this many. 0 before the agent has set it.
    pub limit: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` when there were last more entries than [`FlowEvictions::limit`]; 0
    /// for never.
    pub latest_ns: u64,
}

const _: () = assert!(size_of::<FlowEvictions>() == 24);
crate::pod!(FlowEvictions);

impl FlowEvictions {
    /// The [`FlowEvictions::limit`] of a table with `entries` entries.
    ///
    /// Each CPU takes up to 128 free entries for itself (`LOCAL_FREE_TARGET`, `kernel/bpf/bpf_lru_list.c`). When
    /// no other entry is free, the kernel evicts. One sixteenth is room for entries that were not counted.
    #[must_use]
    pub const fn limit_of(entries: u32, cpus: u32) -> u64 {
        let kept = entries / 16 + 128 * cpus;
        entries.saturating_sub(kept) as u64
    }

    /// Whether a TCP connection may have lost its flow by `now_ns`: flows are removed after the timeout of an
    /// established connection anyway.
    #[inline(always)]
    #[must_use]
    pub const fn may_explain(latest_ns: u64, now_ns: u64) -> bool {
        const TCP: u8 = 6;
        latest_ns != 0 && now_ns.saturating_sub(latest_ns) < FlowState::Established.timeout_ns(TCP)
    }
}

/// Key of the LRU map `fragments`: a fragmented datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FragmentKey {
    /// The source address in the header.
    pub src: Address,
    /// The destination address in the header.
    pub dst: Address,
    /// The identification in network order (16 bits for IPv4).
    pub id: u32,
    /// An IP protocol number (RFC 791); 0 for IPv6, where it does not identify the datagram (RFC 8200, 4.5).
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
    /// Zero.
    pub pad2: u16,
    /// Interface index of the client's device on this node.
    pub device: u32,
    /// Zero.
    pub pad3: u32,
}

const _: () = assert!(size_of::<FragmentKey>() == 48);
crate::pod!(FragmentKey);

/// Value of the LRU map `fragments`: how the first fragment was translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Fragment {
    /// The addresses that each fragment gets. (Only the first one has ports.)
    pub to: Tuple,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the first fragment.
    pub first_seen_ns: u64,
    /// Bits of [`FlowFlags`].
    pub flags: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Fragment>() == 64);
crate::pod!(Fragment);

impl Fragment {
    /// How long after the first fragment a later one may arrive, in nanoseconds: the limit of the kernel's
    /// reassembly (`IP_FRAG_TIME`, include/net/ip.h).
    pub const TIMEOUT_NS: u64 = 30 * SECOND_NS;

    /// Whether a fragment that arrives at `now_ns` belongs to the first one's datagram.
    #[inline(always)]
    #[must_use]
    pub const fn holds(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.first_seen_ns) < Self::TIMEOUT_NS
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    #[test]
    fn state_follows_from_what_both_sides_sent() {
        let cases = [
            (UDP, Seen::ANY, 0, FlowState::Unreplied),
            (UDP, Seen::ANY, Seen::ANY, FlowState::Replied),
            (TCP, Seen::ANY | Seen::SYN, 0, FlowState::Unreplied),
            (TCP, Seen::SYN | Seen::ACK, Seen::SYN | Seen::ACK, FlowState::Established),
            (TCP, Seen::SYN | Seen::FIN, Seen::ANY, FlowState::Closing),
            (TCP, Seen::ANY, Seen::FIN, FlowState::Closing),
            (TCP, Seen::FIN, Seen::FIN, FlowState::Closed),
            (TCP, Seen::FIN, Seen::FIN | Seen::RST, FlowState::Reset),
            (TCP, Seen::SYN, Seen::RST, FlowState::Reset),
        ];
        for (protocol, client, reply, state) in cases {
            assert_eq!(
                FlowState::of(protocol, client, reply),
                state,
                "{protocol} {client:x} {reply:x}"
            );
        }
    }

    #[test]
    fn a_reset_that_was_not_believed_is_forgotten() {
        let reset = Seen::after(Seen::ANY | Seen::SYN, Seen::RST | Seen::ACK);
        assert_ne!(reset & Seen::RST, 0);
        assert_ne!(Seen::after(reset, Seen::RST) & Seen::RST, 0);
        assert_ne!(Seen::after(reset, Seen::SYN) & Seen::RST, 0);
        assert_eq!(Seen::after(reset, Seen::ACK) & Seen::RST, 0);
    }

    #[test]
    fn a_syn_begins_a_connection_that_is_not_half_closed() {
        let closed = Seen::after(Seen::ANY, Seen::FIN | Seen::ACK);
        assert_ne!(Seen::after(closed, Seen::ACK) & Seen::FIN, 0);
        assert_eq!(Seen::after(closed, Seen::SYN | Seen::ACK) & Seen::FIN, 0);
    }

    #[test]
    fn tuples_spread_evenly_over_backends() {
        let backends = 10_usize;
        let mut hits = [0_u32; 10];
        for port in 0..20_000_u16 {
            let tuple = Tuple::new(
                Ipv4Addr::new(10, 1, 0, 2).into(),
                30_000 + port,
                Ipv4Addr::new(10, 99, 0, 1).into(),
                80,
                TCP,
                7,
            );
            let nth = (u64::from(tuple.short_hash()) * backends as u64) >> 32;
            hits[usize::try_from(nth).unwrap()] += 1;
        }
        assert!(hits.iter().all(|hits| (1_800..2_200).contains(hits)), "{hits:?}");
    }

    #[test]
    fn the_two_entries_of_a_flow_name_each_other() {
        let client = Tuple::new(
            Ipv4Addr::new(10, 1, 0, 2).into(),
            40_000,
            Ipv4Addr::new(10, 99, 0, 1).into(),
            80,
            TCP,
            7,
        );
        assert_eq!(client.reversed().reversed(), client);
        assert_ne!(client.reversed(), client);
    }
}
