//! The only code of the packet path that knows which family a packet is of.

use core::{borrow::Borrow, mem::offset_of, ptr};

use aya_ebpf::{bindings::BPF_F_RECOMPUTE_CSUM, helpers::generated::bpf_csum_diff};
use bytemuck::{AnyBitPattern, NoUninit};
use mcs_common::{Address, Tuple};

use super::frame::{Frame, Link, OutOfBounds, bytes_of};

/// IP protocol numbers.
pub(crate) mod protocol {
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const SCTP: u8 = 132;
}

/// What an IP header says, its options and extension headers included.
pub(crate) struct Header {
    /// What follows: an IP protocol number.
    pub(crate) protocol: u8,
    /// Where that begins.
    pub(crate) l4: u32,
    /// Where the packet ends, by its header.
    pub(crate) end: u32,
    pub(crate) piece: Piece,
    /// The identification, as it stands.
    pub(crate) id: u32,
}

/// Whether a packet is whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Whole,
    /// The first fragment, which has the ports.
    First,
    /// A later fragment.
    Later,
}

impl Piece {
    #[inline(always)]
    const fn of(offset: u16, more: bool) -> Self {
        if offset != 0 {
            Self::Later
        } else if more {
            Self::First
        } else {
            Self::Whole
        }
    }
}

impl Header {
    /// The same, and where it begins, by way of `place`: the verifier forgets what it knows of the
    /// values, and goes on once for all the ways in which they can be read.
    ///
    /// Before Linux 6.3 it tells the states of programs with functions apart by every scalar in them;
    /// the paths through two headers, one inside an ICMP error, come near to its limit then.
    #[inline(always)]
    pub(crate) fn anew(self, l3: u32, place: &mut [u32; 6]) -> (Self, u32) {
        let Self { protocol, l4, end, piece, id } = self;
        // SAFETY: a reference.
        let [protocol, l4, end, piece, id, l3] = unsafe {
            ptr::from_mut(place).write_volatile([protocol.into(), l4, end, piece as u32, id, l3]);
            ptr::from_ref(place).read_volatile()
        };
        #[expect(clippy::cast_possible_truncation, reason = "it was a byte")]
        let protocol = protocol as u8;
        let piece = match piece {
            0 => Piece::Whole,
            1 => Piece::First,
            _ => Piece::Later,
        };
        (Self { protocol, l4, end, piece, id }, l3)
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

/// A family's headers.
pub(crate) trait Ip {
    /// The protocol number of its ICMP.
    const ICMP: u8;
    /// Types of ICMP messages.
    const ECHO_REQUEST: u8;
    const ECHO_REPLY: u8;
    /// Type and code of an ICMP message.
    const PORT_UNREACHABLE: [u8; 2];
    /// A header without options or extensions.
    type Plain: NoUninit;
    /// Source and destination, side by side as in the header.
    type Pair: NoUninit;
    /// Them, or where they stand.
    type Addresses<'a>: Borrow<Self::Pair>;
    /// Where they stand in the header.
    const ADDRESSES: u32;
    /// Whether pieces of a datagram are told by their protocol too (RFC 791; not so RFC 8200, 4.5).
    const PIECES_BY_PROTOCOL: bool;
    /// Where the checksum stands in the header, if there is one.
    const CHECKSUM: Option<u32>;
    /// How addresses are written: IPv6 has no header checksum whose change makes up for theirs in
    /// a checksum over the whole packet (`CHECKSUM_COMPLETE`).
    const STORE_FLAGS: u64;

    /// The destination alone: what decides whether a packet is ours.
    fn destination<L: Link>(frame: &Frame<L>) -> Result<Address, OutOfBounds>;
    /// Reads a header that begins at `l3`, and all that stands before its payload, and fills in
    /// `tuple` but for the ports (which it leaves 0). `quoted` is one
    /// inside an ICMP error, which may be cut anywhere behind its header.
    fn parse<L: Link>(
        frame: &Frame<L>,
        l3: u32,
        quoted: bool,
        tuple: &mut Tuple,
    ) -> Result<Header, Malformed>;
    /// The addresses as they stand in a header.
    fn addresses(tuple: &Tuple) -> Self::Addresses<'_>;
    /// Whether ICMP of this type is an error, with the packet that it is about inside.
    fn is_error(kind: u8) -> bool;
    /// Where the packet stands that a redirect is about (RFC 792; RFC 4861, 4.5), if that is what the
    /// message of this type is.
    fn redirected<L: Link>(frame: &Frame<L>, message: u32, kind: u8) -> Option<u32>;
    /// The header of an ICMP message from and to the ends of `tuple`, of `length` bytes.
    fn plain(tuple: &Tuple, length: u16) -> Self::Plain;
    /// What that header adds to the sum of an ICMP message: the pseudo-header of ICMPv6.
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

/// The sum of words as they stand in a packet, to be folded.
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

/// The Internet checksum of a sum, as it stands in a packet (RFC 1071).
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

/// Hops of what we send ourselves.
const HOPS: u8 = 64;

/// IPv4.
pub(crate) struct V4;
/// IPv6.
pub(crate) struct V6;

#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
struct V4Header {
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

impl Ip for V4 {
    const ICMP: u8 = 1;
    const ECHO_REQUEST: u8 = 8;
    const ECHO_REPLY: u8 = 0;
    const PORT_UNREACHABLE: [u8; 2] = [3, 3];
    type Plain = [u32; 5];
    type Pair = [u32; 2];
    type Addresses<'a> = [u32; 2];
    const ADDRESSES: u32 = 12;
    const PIECES_BY_PROTOCOL: bool = true;
    const CHECKSUM: Option<u32> = Some(10);
    const STORE_FLAGS: u64 = 0;

    #[inline(always)]
    fn destination<L: Link>(frame: &Frame<L>) -> Result<Address, OutOfBounds> {
        Ok(Address::from_v4_word(frame.load(frame.l3 + 16)?))
    }

    #[inline(always)]
    fn parse<L: Link>(
        frame: &Frame<L>,
        l3: u32,
        quoted: bool,
        tuple: &mut Tuple,
    ) -> Result<Header, Malformed> {
        const MORE: u16 = 0x2000;
        const OFFSET: u16 = 0x1fff;

        let header: V4Header = frame.load(l3)?;
        let length = u32::from(header.version_length & 0xf) * 4;
        let mut total = u32::from(u16::from_be(header.total));
        let len = frame.len();
        // More than 64 KiB, in segments for the device to cut ("BIG TCP").
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
        Ok(Header {
            protocol: header.protocol,
            l4: l3 + length,
            end: l3 + total,
            piece: Piece::of(fragment & OFFSET, fragment & MORE != 0),
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
    fn redirected<L: Link>(_: &Frame<L>, message: u32, kind: u8) -> Option<u32> {
        const REDIRECT: u8 = 5;

        (kind == REDIRECT).then_some(message + 8)
    }

    #[inline(always)]
    fn plain(tuple: &Tuple, length: u16) -> Self::Plain {
        let [src, dst] = Self::addresses(tuple);
        // Precedence "internetwork control", as RFC 1812, 4.3.2.5 wants it for errors.
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

/// What stands before the addresses.
#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
struct V6Header {
    version_class_flow: u32,
    payload: u16,
    next: u8,
    hops: u8,
}

impl V6 {
    /// Headers that may stand before the payload: more than RFC 8200 recommends (4.1), hop-by-hop
    /// and destination options, routing, fragment, and destination options once more.
    const EXTENSIONS: usize = 6;
}

impl Ip for V6 {
    const ICMP: u8 = 58;
    const ECHO_REQUEST: u8 = 128;
    const ECHO_REPLY: u8 = 129;
    const PORT_UNREACHABLE: [u8; 2] = [1, 4];
    type Plain = [u32; 10];
    type Pair = [u32; 8];
    type Addresses<'a> = &'a [u32; 8];
    const ADDRESSES: u32 = 8;
    const PIECES_BY_PROTOCOL: bool = false;
    const CHECKSUM: Option<u32> = None;
    const STORE_FLAGS: u64 = BPF_F_RECOMPUTE_CSUM as u64;

    #[inline(always)]
    fn destination<L: Link>(frame: &Frame<L>) -> Result<Address, OutOfBounds> {
        Ok(Address::from_words(frame.load(frame.l3 + 24)?))
    }

    #[inline(always)]
    fn parse<L: Link>(
        frame: &Frame<L>,
        l3: u32,
        quoted: bool,
        tuple: &mut Tuple,
    ) -> Result<Header, Malformed> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;
        const MORE: u16 = 1;

        let fixed: V6Header = frame.load(l3)?;
        let len = frame.len();
        let payload = u32::from(u16::from_be(fixed.payload));
        let mut end = l3 + 40 + payload;
        // More than 64 KiB, in segments for the device to cut ("BIG TCP").
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
        let mut header =
            Header { protocol: fixed.next, l4: l3 + 40, end, piece: Piece::Whole, id: 0 };
        for _ in 0..=Self::EXTENSIONS {
            let extends = matches!(header.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION);
            if !extends || header.piece == Piece::Later {
                tuple.protocol = header.protocol;
                return Ok(header);
            }
            let extension: [u8; 4] = frame.load(header.l4)?;
            let [next, units, third, fourth] = extension;
            if header.protocol == ROUTING && fourth != 0 {
                // The destination is a stop on the way, not the end of it.
                return Err(Malformed);
            }
            let size = if header.protocol == FRAGMENT {
                // A second one would say something else.
                if header.piece != Piece::Whole {
                    return Err(Malformed);
                }
                let offset = u16::from_be_bytes([third, fourth]);
                header.piece = Piece::of(offset >> 3, offset & MORE != 0);
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
        // RFC 4443, 2.1. 0 is reserved, and those above parameter problem are not in use.
        matches!(kind, 1..=4)
    }

    #[inline(always)]
    fn redirected<L: Link>(frame: &Frame<L>, message: u32, kind: u8) -> Option<u32> {
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
    fn plain(tuple: &Tuple, length: u16) -> Self::Plain {
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
