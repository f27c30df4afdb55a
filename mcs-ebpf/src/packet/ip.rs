//! Reads and writes IP headers. No other code of the packet path tells IPv4 from IPv6.

mod ipv4;
mod ipv6;

use core::{borrow::Borrow, mem::MaybeUninit, ptr};

use aya_ebpf::helpers::generated::bpf_csum_diff;
use bytemuck::{AnyBitPattern, NoUninit};
use mcs_common::{Address, Tuple};

pub(crate) use self::{ipv4::Ipv4, ipv6::Ipv6};
use super::{
    frame::{Frame, LinkLayer, OutOfBounds, bytes_of},
    header::{IpHeader, Malformed},
    transport::TransportStart,
};

/// The headers of an IP version.
pub(crate) trait IpVersion: Sized {
    /// The IP protocol number of its ICMP.
    const ICMP: u8;
    /// The ICMP type of an echo request.
    const ECHO_REQUEST: u8;
    /// The ICMP type of an echo reply.
    const ECHO_REPLY: u8;
    /// The ICMP type and code of port unreachable.
    const PORT_UNREACHABLE: [u8; 2];
    /// The IP header without options or extension headers.
    type Header: AnyBitPattern;
    /// The IP header of an ICMP message that a program writes: without options or extensions.
    type IcmpIpHeader: NoUninit;
    /// Source and destination address, as the header holds them side by side.
    type AddressPair: NoUninit + AsRef<[u32]>;
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
    /// The protocol of the payload, or of the first extension header.
    fn protocol(header: &Self::Header) -> u8;
    /// The addresses, as the header holds them.
    fn pair(header: &Self::Header) -> &Self::AddressPair;
    /// Source and destination address.
    fn ends(pair: &Self::AddressPair) -> (Address, Address);
    /// The length of the payload in bytes. `None` for a fragment, a packet with options or extension headers, and
    /// one that does not fit into `len` bytes.
    fn plain_payload(header: &Self::Header, len: u32) -> Option<u32>;
    /// The addresses of a tuple in a map.
    ///
    /// # Safety
    /// `tuple` points to a part of a map's value. Another CPU may write it meanwhile.
    unsafe fn read_pair(tuple: *const Tuple) -> Self::AddressPair;
    /// Writes the ends of a packet that has no options or extension headers, and its header's checksum, which
    /// changes by `difference`. The checksum of the payload has been changed before.
    fn store_ends<L: LinkLayer>(
        frame: &Frame<L>,
        start: &Start<Self>,
        pair: Self::AddressPair,
        ports: u32,
        difference: u32,
    ) -> Result<(), OutOfBounds>;
    /// The sum of the pseudo-header that an `ICMPv6` checksum includes (RFC 4443, 2.3); 0 for `ICMPv4`.
    fn pseudo_sum(tuple: &Tuple, length: u16) -> u64;
}

/// The start of a packet without options or extension headers.
#[repr(C)]
pub(crate) struct Start<F: IpVersion> {
    pub(crate) ip: F::Header,
    pub(crate) transport: TransportStart,
}

impl<F: IpVersion> Start<F> {
    /// Reads the start of a packet. Of one with fewer than 16 bytes behind the IP header, it reads 8, and the rest is 0.
    #[inline(always)]
    pub(crate) fn read<L: LinkLayer>(frame: &Frame<L>) -> Result<Self, OutOfBounds> {
        let (whole, short) = (bytes_of::<Self>(), bytes_of::<F::Header>() + 8);
        let length = if frame.len() < frame.l3 + whole { short } else { whole };
        let mut start = MaybeUninit::<Self>::uninit();
        // SAFETY: `length` bytes are written, and the rest here. Any bytes are a `Start`.
        unsafe {
            let last = (&raw mut (*start.as_mut_ptr()).transport).cast::<u32>().add(2);
            last.write(0);
            last.add(1).write(0);
            frame.load_to(frame.l3, start.as_mut_ptr(), length)?;
            Ok(start.assume_init())
        }
    }
}

/// What [`checksum_difference`] returns, without a call of the kernel: for a few words that is faster.
#[inline(always)]
pub(crate) fn difference_of(from: &[u32], to: &[u32]) -> u32 {
    let mut sum = 0;
    for (from, to) in from.iter().zip(to) {
        sum += u64::from(!from) + u64::from(*to);
    }
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    #[expect(clippy::cast_possible_truncation, reason = "folded")]
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    sum
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
