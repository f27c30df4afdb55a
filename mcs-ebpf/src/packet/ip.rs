//! Reads and writes IP headers. No other code of the packet path tells IPv4 from IPv6.

use core::{borrow::Borrow, mem::offset_of, ptr};

use aya_ebpf::{bindings::BPF_F_RECOMPUTE_CSUM, helpers::generated::bpf_csum_diff};
use bytemuck::{AnyBitPattern, NoUninit};
use mcs_common::{Address, Tuple};

use super::frame::{Frame, LinkLayer, OutOfBounds, bytes_of};

/// IP protocol numbers.
pub(crate) mod protocol {
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const SCTP: u8 = 132;
}

/// The contents of an IP header, its options and extension headers included.
pub(crate) struct IpHeader {
    /// The IP protocol number of the payload.
    pub(crate) protocol: u8,
    /// The offset of the payload, in bytes.
    pub(crate) l4: u32,
    /// The offset of the packet's end by the length in its header, in bytes.
    pub(crate) end: u32,
    pub(crate) fragment: FragmentPosition,
    /// The identification, in network order; 0 for IPv6 without a fragment header.
    pub(crate) id: u32,
}

/// Whether a packet is a fragment, and which.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentPosition {
    Unfragmented,
    /// The first fragment, which has the ports.
    First,
    /// A later fragment.
    Later,
}

impl FragmentPosition {
    #[inline(always)]
    const fn of(offset: u16, more: bool) -> Self {
        if offset != 0 {
            Self::Later
        } else if more {
            Self::First
        } else {
            Self::Unfragmented
        }
    }
}

impl IpHeader {
    /// Writes the header and its offset `l3` to `place` and reads them back. The verifier then knows
    /// nothing of the values, and checks the rest once for all paths through the parser.
    ///
    /// Before Linux 6.3 it compares every scalar of two states in a program with functions. The paths
    /// through two headers, one of them quoted by an ICMP error, come near its limit there.
    #[inline(always)]
    pub(crate) fn reload(self, l3: u32, place: &mut [u32; 6]) -> (Self, u32) {
        let Self { protocol, l4, end, fragment, id } = self;
        // SAFETY: a reference.
        let [protocol, l4, end, fragment, id, l3] = unsafe {
            ptr::from_mut(place).write_volatile([
                protocol.into(),
                l4,
                end,
                fragment as u32,
                id,
                l3,
            ]);
            ptr::from_ref(place).read_volatile()
        };
        #[expect(clippy::cast_possible_truncation, reason = "it was a byte")]
        let protocol = protocol as u8;
        let fragment = match fragment {
            0 => FragmentPosition::Unfragmented,
            1 => FragmentPosition::First,
            _ => FragmentPosition::Later,
        };
        (Self { protocol, l4, end, fragment, id }, l3)
    }
}

/// The header is cut short, contradicts itself, or nests too deep.
pub(crate) struct Malformed;

impl From<OutOfBounds> for Malformed {
    #[inline(always)]
    fn from(_: OutOfBounds) -> Self {
        Self
    }
}

/// The headers of an IP version.
pub(crate) trait IpVersion {
    /// The IP protocol number of its ICMP.
    const ICMP: u8;
    /// The ICMP type of an echo request.
    const ECHO_REQUEST: u8;
    /// The ICMP type of an echo reply.
    const ECHO_REPLY: u8;
    /// The ICMP type and code of port unreachable.
    const PORT_UNREACHABLE: [u8; 2];
    /// The IP header of an ICMP message that a program writes: without options or extensions.
    type IcmpIpHeader: NoUninit;
    /// Source and destination address, as the header holds them side by side.
    type AddressPair: NoUninit;
    /// An [`AddressPair`](Self::AddressPair), or a reference to one.
    type Addresses<'a>: Borrow<Self::AddressPair>;
    /// The offset of the addresses in the header, in bytes.
    const ADDRESSES: u32;
    /// Whether the protocol is part of what identifies a fragment's datagram (RFC 791: yes, RFC 8200,
    /// 4.5: no).
    const FRAGMENTS_BY_PROTOCOL: bool;
    /// The offset of the checksum in the header, in bytes; IPv6 has none.
    const CHECKSUM: Option<u32>;
    /// The flags of `bpf_skb_store_bytes` for addresses. IPv6 has no header checksum whose change
    /// cancels out theirs in a sum over the whole packet (`CHECKSUM_COMPLETE`).
    const STORE_FLAGS: u64;

    /// Reads the destination alone. It decides whether a packet goes to a VIP.
    fn destination<L: LinkLayer>(frame: &Frame<L>) -> Result<Address, OutOfBounds>;
    /// Reads the header at `l3` up to its payload and stores the ends in `tuple`, with ports of 0.
    /// `quoted` is a packet inside an ICMP error, which may be cut anywhere after its header.
    fn parse<L: LinkLayer>(
        frame: &Frame<L>,
        l3: u32,
        quoted: bool,
        tuple: &mut Tuple,
    ) -> Result<IpHeader, Malformed>;
    /// The addresses as the header holds them.
    fn addresses(tuple: &Tuple) -> Self::Addresses<'_>;
    /// Whether an ICMP message of this type is an error, which quotes a packet.
    fn is_error(kind: u8) -> bool;
    /// The offset of the packet that a redirect quotes (RFC 792; RFC 4861, 4.5), in bytes, or `None` if
    /// the message at offset `message` is no redirect.
    fn redirected<L: LinkLayer>(frame: &Frame<L>, message: u32, kind: u8) -> Option<u32>;
    /// The IP header of an ICMP message of `length` bytes between the ends of `tuple`.
    fn icmp_ip_header(tuple: &Tuple, length: u16) -> Self::IcmpIpHeader;
    /// The sum of the pseudo-header that an `ICMPv6` checksum includes (RFC 4443, 2.3); 0 for `ICMPv4`.
    fn pseudo_sum(tuple: &Tuple, length: u16) -> u64;
}

/// The difference that replacing `from` by `to` makes to a sum of 16-bit words.
#[inline(always)]
pub(crate) fn checksum_difference<T: NoUninit>(from: &T, to: &T) -> u64 {
    // SAFETY: the helper reads both, whose size is a multiple of 4.
    let difference = unsafe {
        bpf_csum_diff(
            ptr::from_ref(from).cast_mut().cast(),
            bytes_of::<T>(),
            ptr::from_ref(to).cast_mut().cast(),
            bytes_of::<T>(),
            0,
        )
    };
    difference.cast_unsigned()
}

/// The sum of words in network order, for [`fold`].
#[inline(always)]
pub(crate) fn sum<const N: usize>(words: &[u32; N]) -> u64 {
    let mut sum = 0;
    let mut word = 0;
    while word < N {
        sum += u64::from(words[word]);
        word += 1;
    }
    sum
}

/// The Internet checksum of a sum (RFC 1071), in the byte order of the words added.
#[inline(always)]
pub(crate) const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    #[expect(clippy::cast_possible_truncation, reason = "folded")]
    let sum = sum as u16;
    !sum
}

/// The hop limit of ICMP errors that the programs send.
const HOPS: u8 = 64;

/// The headers of IPv4.
pub(crate) struct Ipv4;
/// The headers of IPv6.
pub(crate) struct Ipv6;

#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
struct Ipv4Header {
    version_length: u8,
    service: u8,
    total: u16,
    id: u16,
    fragment: u16,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    src: u32,
    dst: u32,
}

impl IpVersion for Ipv4 {
    const ICMP: u8 = 1;
    const ECHO_REQUEST: u8 = 8;
    const ECHO_REPLY: u8 = 0;
    const PORT_UNREACHABLE: [u8; 2] = [3, 3];
    type IcmpIpHeader = [u32; 5];
    type AddressPair = [u32; 2];
    type Addresses<'a> = [u32; 2];
    const ADDRESSES: u32 = 12;
    const FRAGMENTS_BY_PROTOCOL: bool = true;
    const CHECKSUM: Option<u32> = Some(10);
    const STORE_FLAGS: u64 = 0;

    #[inline(always)]
    fn destination<L: LinkLayer>(frame: &Frame<L>) -> Result<Address, OutOfBounds> {
        Ok(Address::from_v4_word(frame.load(frame.l3 + 16)?))
    }

    #[inline(always)]
    fn parse<L: LinkLayer>(
        frame: &Frame<L>,
        l3: u32,
        quoted: bool,
        tuple: &mut Tuple,
    ) -> Result<IpHeader, Malformed> {
        const MORE: u16 = 0x2000;
        const OFFSET: u16 = 0x1fff;

        let header: Ipv4Header = frame.load(l3)?;
        let length = u32::from(header.version_length & 0xf) * 4;
        let mut total = u32::from(u16::from_be(header.total));
        let len = frame.len();
        // A packet above 64 KiB that the device is to split has the length 0 ("BIG TCP").
        if total == 0 && frame.is_gso() && !quoted {
            total = len.wrapping_sub(l3);
        }
        let fits = quoted || l3 + total <= len;
        if header.version_length >> 4 != 4 || length < 20 || total < length || !fits {
            return Err(Malformed);
        }
        let fragment = u16::from_be(header.fragment);
        let (src, dst) = (Address::from_v4_word(header.src), Address::from_v4_word(header.dst));
        *tuple = Tuple::new(src, 0, dst, 0, header.protocol, frame.device());
        Ok(IpHeader {
            protocol: header.protocol,
            l4: l3 + length,
            end: l3 + total,
            fragment: FragmentPosition::of(fragment & OFFSET, fragment & MORE != 0),
            id: u32::from(header.id),
        })
    }

    #[inline(always)]
    fn addresses(tuple: &Tuple) -> Self::Addresses<'_> {
        let [.., src] = tuple.src.words();
        let [.., dst] = tuple.dst.words();
        [src, dst]
    }

    #[inline(always)]
    fn is_error(kind: u8) -> bool {
        const UNREACHABLE: u8 = 3;
        const SOURCE_QUENCH: u8 = 4;
        const TIME_EXCEEDED: u8 = 11;
        const PARAMETER_PROBLEM: u8 = 12;

        matches!(kind, UNREACHABLE | SOURCE_QUENCH | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }

    #[inline(always)]
    fn redirected<L: LinkLayer>(_: &Frame<L>, message: u32, kind: u8) -> Option<u32> {
        const REDIRECT: u8 = 5;

        (kind == REDIRECT).then_some(message + 8)
    }

    #[inline(always)]
    fn icmp_ip_header(tuple: &Tuple, length: u16) -> Self::IcmpIpHeader {
        let [src, dst] = Self::addresses(tuple);
        // RFC 1812, 4.3.2.5: errors have the precedence "internetwork control".
        let first = 0x45c0_0000 | (u32::from(length) + 20);
        let dont_fragment = 0x4000_u32;
        let life = (u32::from(HOPS) << 24) | (u32::from(Self::ICMP) << 16);
        let mut words = [first.to_be(), dont_fragment.to_be(), life.to_be(), src, dst];
        let [high, low] = fold(sum(&words)).to_ne_bytes();
        words[2] |= u32::from_ne_bytes([0, 0, high, low]);
        words
    }

    #[inline(always)]
    fn pseudo_sum(_: &Tuple, _: u16) -> u64 {
        0
    }
}

/// The part of the header before the addresses.
#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
struct Ipv6FixedHeader {
    version_class_flow: u32,
    payload: u16,
    next: u8,
    hops: u8,
}

impl Ipv6 {
    /// The most extension headers before the payload. RFC 8200, 4.1 recommends at most five here:
    /// hop-by-hop options, destination options, routing, fragment, and destination options again.
    const EXTENSIONS: usize = 6;
}

impl IpVersion for Ipv6 {
    const ICMP: u8 = 58;
    const ECHO_REQUEST: u8 = 128;
    const ECHO_REPLY: u8 = 129;
    const PORT_UNREACHABLE: [u8; 2] = [1, 4];
    type IcmpIpHeader = [u32; 10];
    type AddressPair = [u32; 8];
    type Addresses<'a> = &'a [u32; 8];
    const ADDRESSES: u32 = 8;
    const FRAGMENTS_BY_PROTOCOL: bool = false;
    const CHECKSUM: Option<u32> = None;
    const STORE_FLAGS: u64 = BPF_F_RECOMPUTE_CSUM as u64;

    #[inline(always)]
    fn destination<L: LinkLayer>(frame: &Frame<L>) -> Result<Address, OutOfBounds> {
        Ok(Address::from_words(frame.load(frame.l3 + 24)?))
    }

    #[inline(always)]
    fn parse<L: LinkLayer>(
        frame: &Frame<L>,
        l3: u32,
        quoted: bool,
        tuple: &mut Tuple,
    ) -> Result<IpHeader, Malformed> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;
        const MORE: u16 = 1;

        let fixed: Ipv6FixedHeader = frame.load(l3)?;
        let len = frame.len();
        let payload = u32::from(u16::from_be(fixed.payload));
        let mut end = l3 + 40 + payload;
        // A packet above 64 KiB that the device is to split has the length 0 ("BIG TCP").
        if payload == 0 && frame.is_gso() && !quoted {
            end = len;
        }
        let version = u32::from_be(fixed.version_class_flow) >> 28;
        if version != 6 || (!quoted && end > len) {
            return Err(Malformed);
        }
        tuple.src = frame.load(l3 + 8)?;
        tuple.dst = frame.load(l3 + 24)?;
        tuple.src_port = 0;
        tuple.dst_port = 0;
        tuple.pad = 0;
        tuple.pad2 = 0;
        tuple.device = frame.device();
        tuple.pad3 = 0;
        let mut header = IpHeader {
            protocol: fixed.next,
            l4: l3 + 40,
            end,
            fragment: FragmentPosition::Unfragmented,
            id: 0,
        };
        for _ in 0..=Self::EXTENSIONS {
            let extends = matches!(header.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION);
            if !extends || header.fragment == FragmentPosition::Later {
                tuple.protocol = header.protocol;
                return Ok(header);
            }
            let extension: [u8; 4] = frame.load(header.l4)?;
            let [next, units, third, fourth] = extension;
            if header.protocol == ROUTING && fourth != 0 {
                // The destination in the header is only the next hop of a source route.
                return Err(Malformed);
            }
            let size = if header.protocol == FRAGMENT {
                // A second fragment header contradicts the first.
                if header.fragment != FragmentPosition::Unfragmented {
                    return Err(Malformed);
                }
                let offset = u16::from_be_bytes([third, fourth]);
                header.fragment = FragmentPosition::of(offset >> 3, offset & MORE != 0);
                header.id = frame.load(header.l4 + 4)?;
                8
            } else {
                (u32::from(units) + 1) * 8
            };
            header.protocol = next;
            header.l4 += size;
            if header.l4 > header.end {
                return Err(Malformed);
            }
        }
        Err(Malformed)
    }

    #[inline(always)]
    fn addresses(tuple: &Tuple) -> Self::Addresses<'_> {
        const {
            assert!(offset_of!(Tuple, src) == 0 && offset_of!(Tuple, dst) == 16);
        }
        // SAFETY: the first 32 bytes of a tuple are its addresses, and words are aligned in it.
        unsafe { &*ptr::from_ref(tuple).cast() }
    }

    #[inline(always)]
    fn is_error(kind: u8) -> bool {
        // RFC 4443, 2.1. Type 0 is reserved, and those above parameter problem are unassigned.
        matches!(kind, 1..=4)
    }

    #[inline(always)]
    fn redirected<L: LinkLayer>(frame: &Frame<L>, message: u32, kind: u8) -> Option<u32> {
        const REDIRECT: u8 = 137;
        const OPTIONS: u32 = 40;
        const TARGET_STATION: u8 = 2;
        const REDIRECTED_HEADER: u8 = 4;

        if kind != REDIRECT {
            return None;
        }
        let mut option = message + OPTIONS;
        let mut name: u8 = frame.load(option).ok()?;
        if name == TARGET_STATION {
            option += 8;
            name = frame.load(option).ok()?;
        }
        (name == REDIRECTED_HEADER).then_some(option + 8)
    }

    #[inline(always)]
    fn icmp_ip_header(tuple: &Tuple, length: u16) -> Self::IcmpIpHeader {
        let [[s0, s1, s2, s3], [d0, d1, d2, d3]] = [tuple.src.words(), tuple.dst.words()];
        let version = 6_u32 << 28;
        let rest = (u32::from(length) << 16) | (u32::from(Self::ICMP) << 8) | u32::from(HOPS);
        [version.to_be(), rest.to_be(), s0, s1, s2, s3, d0, d1, d2, d3]
    }

    #[inline(always)]
    fn pseudo_sum(tuple: &Tuple, length: u16) -> u64 {
        let rest = [u32::from(length).to_be(), u32::from(Self::ICMP).to_be()];
        sum(Self::addresses(tuple)) + sum(&rest)
    }
}
