//! Flows of the packet path: what tc remembers of a connection that it translates.

use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef};

const SECOND_NS: u64 = 1_000_000_000;

/// Both ends of a packet, as it stands in its headers, and the client's device: whoever sends with
/// somebody else's address, or gets it later, has flows of its own.
#[derive(Clone, Copy, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Tuple {
    /// The source.
    pub src: Address,
    /// The destination.
    pub dst: Address,
    /// Host order.
    pub src_port: u16,
    /// Host order.
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

    /// The tuple of a packet the other way.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self::new(self.dst, self.dst_port, self.src, self.src_port, self.protocol, self.device)
    }

    /// A number that is uniform over tuples and always the same for one, whatever the device: [`pick`] by it finds the
    /// same backend again for a flow that was forgotten, as long as the set is the same.
    ///
    /// [`pick`]: crate::select::pick
    #[inline(always)]
    #[must_use]
    pub fn spread(&self) -> u32 {
        let [ends @ .., _]: [u64; 6] = bytemuck::cast(*self);
        spread(&ends)
    }
}

impl Address {
    /// As [`Tuple::spread`], of a client and a frontend: for session affinity.
    #[inline(always)]
    #[must_use]
    pub fn spread(&self, frontend: u32) -> u32 {
        let [high, low]: [u64; 2] = bytemuck::cast(*self);
        spread(&[high, low, u64::from(frontend)])
    }
}

/// A multiplicative hash: the multiplier is that of `SplitMix64`, with its final mixing.
#[inline(always)]
fn spread<const N: usize>(words: &[u64; N]) -> u32 {
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
    /// The entry translates replies. Without it: packets of the client.
    pub const REPLY: u32 = 1;
    /// Client and backend are one pod: its packets go back out of the device they came from.
    pub const HAIRPIN: u32 = 2;
}

/// Bits of [`Flow::seen`]: flags of the TCP header, and one of our own.
pub struct Seen;

impl Seen {
    /// The sender has closed.
    pub const FIN: u32 = 0x01;
    /// A connection was asked for.
    pub const SYN: u32 = 0x02;
    /// The sender has reset the connection.
    pub const RST: u32 = 0x04;
    /// An acknowledgement.
    pub const ACK: u32 = 0x10;
    /// Any packet at all, of any protocol.
    pub const ANY: u32 = 0x100;

    /// What is known after another packet with these TCP flags (0 for UDP). Whoever goes on sending
    /// after a reset did not believe it.
    #[inline(always)]
    #[must_use]
    pub const fn after(seen: u32, flags: u32) -> u32 {
        let kept = if flags & (Self::RST | Self::SYN) == 0 { seen & !Self::RST } else { seen };
        kept | Self::ANY | (flags & (Self::FIN | Self::SYN | Self::RST | Self::ACK))
    }
}

/// Value of the LRU map `flows`, under the [`Tuple`] of the packets that it translates. A flow has
/// two: the client's, and one for replies, whose key is `to.reversed()` and whose `to` is the
/// client's key reversed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Flow {
    /// What a packet becomes.
    pub to: Tuple,
    /// The backend chosen.
    pub chosen: BackendRef,
    /// Index into `states`.
    pub frontend: u32,
    /// Bits of [`FlowFlags`].
    pub flags: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the latest packet this way (or when the entry was made),
    /// written when it is [`Flow::TOUCH_NS`] old.
    pub last_seen_ns: u64,
    /// Bits of [`Seen`], of all packets this way.
    pub seen: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Flow>() == 80);
crate::pod!(Flow);

impl Flow {
    /// How much [`Flow::last_seen_ns`] may lag behind.
    pub const TOUCH_NS: u64 = SECOND_NS / 4;

    /// Whether this entry translates replies.
    #[inline(always)]
    #[must_use]
    pub const fn is_reply(&self) -> bool {
        self.flags & FlowFlags::REPLY != 0
    }
}

/// How a flow stands, by what was seen of it in both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum FlowState {
    /// No answer yet.
    Unreplied,
    /// Answered, not TCP.
    Replied,
    /// TCP that was answered and that nobody has closed.
    Established,
    /// TCP that one side has closed.
    Closing,
    /// TCP that both sides have closed.
    Closed,
    /// TCP that one side has reset.
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

    /// The state of a flow of this protocol, by [`Flow::seen`] of its two entries (0 for one that is
    /// gone).
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

    /// Nanoseconds without a packet after which a flow in this state is forgotten.
    ///
    /// Unreplied and replied UDP, unanswered TCP, closed and reset TCP as the kernel's connection
    /// tracking (`nf_conntrack_udp_timeout` 30 s and `_stream` 120 s, `nf_conntrack_tcp_timeout_syn_sent`
    /// 120 s, `_time_wait` 120 s, `_close` 10 s: Documentation/networking/nf_conntrack-sysctl.rst).
    /// Established and half-closed TCP as RFC 5382, REQ-5: 2 hours 4 minutes, and 4 minutes.
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

    /// Whether a new SYN starts a new connection rather than repeating one.
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

/// Values of the array `flows_used`: whether packets to pods have to be looked up in `flows`.
pub struct FlowsUsed;

impl FlowsUsed {
    /// There is no flow.
    pub const NO: u32 = 0;
    /// There may be flows. Written by whoever is about to make one.
    pub const YES: u32 = 1;
    /// User space found none and is looking once more; programs treat it as [`FlowsUsed::YES`].
    pub const ENDING: u32 = 2;
}

/// Key of the LRU map `fragments`: a datagram sent in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FragmentKey {
    /// As in the header.
    pub src: Address,
    /// As in the header.
    pub dst: Address,
    /// The identification, in network order as it stands (16 bits for IPv4).
    pub id: u32,
    /// An IP protocol number; 0 for IPv6, which does not tell pieces by it.
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

/// Value of the LRU map `fragments`: what became of the first piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Fragment {
    /// The addresses that each piece gets (the ports are in the first alone).
    pub to: Tuple,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the first piece.
    pub first_seen_ns: u64,
    /// Bits of [`FlowFlags`].
    pub flags: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<Fragment>() == 64);
crate::pod!(Fragment);

impl Fragment {
    /// How long pieces may follow the first, as the kernel's reassembly (`IP_FRAG_TIME`,
    /// include/net/ip.h).
    pub const TIMEOUT_NS: u64 = 30 * SECOND_NS;

    /// Whether a piece that comes at `now_ns` belongs to the datagram of the first.
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
            let nth = (u64::from(tuple.spread()) * backends as u64) >> 32;
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
