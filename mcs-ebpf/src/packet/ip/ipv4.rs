//! Reads and writes IPv4 headers.

use bytemuck::AnyBitPattern;
use mcs_common::{Address, Tuple};

use super::{HOPS, IpVersion, Start, fold, sum};
use crate::packet::{
    frame::{Frame, LinkLayer, OutOfBounds},
    header::{FragmentPosition, IpHeader, Malformed},
};

/// The headers of IPv4.
pub(crate) struct Ipv4;

#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
pub(crate) struct Ipv4Header {
    version_length: u8,
    service: u8,
    total: u16,
    id: u16,
    fragment: u16,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    addresses: [u32; 2],
}

/// Whether a fragment follows.
const MORE: u16 = 0x2000;
/// The offset of a fragment.
const OFFSET: u16 = 0x1fff;

impl IpVersion for Ipv4 {
    const ICMP: u8 = 1;
    const ECHO_REQUEST: u8 = 8;
    const ECHO_REPLY: u8 = 0;
    const PORT_UNREACHABLE: [u8; 2] = [3, 3];
    type Header = Ipv4Header;
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
        let (src, dst) = Self::ends(&header.addresses);
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
    fn protocol(header: &Ipv4Header) -> u8 {
        header.protocol
    }

    #[inline(always)]
    fn pair(header: &Ipv4Header) -> &[u32; 2] {
        &header.addresses
    }

    #[inline(always)]
    fn ends([src, dst]: &[u32; 2]) -> (Address, Address) {
        (Address::from_v4_word(*src), Address::from_v4_word(*dst))
    }

    #[inline(always)]
    fn plain_payload(header: &Ipv4Header, len: u32) -> Option<u32> {
        const PLAIN: u8 = 0x45;

        let total = u32::from(u16::from_be(header.total));
        let whole = header.fragment & (MORE | OFFSET).to_be() == 0;
        let fits = total >= 20 && total <= len;
        (header.version_length == PLAIN && whole && fits).then(|| total - 20)
    }

    #[inline(always)]
    unsafe fn read_pair(tuple: *const Tuple) -> [u32; 2] {
        // SAFETY: the caller guarantees it. The last word of an address is that of IPv4.
        unsafe {
            let src = (&raw const (*tuple).src).cast::<u32>().add(3).read_volatile();
            let dst = (&raw const (*tuple).dst).cast::<u32>().add(3).read_volatile();
            [src, dst]
        }
    }

    #[inline(always)]
    fn store_ends<L: LinkLayer>(
        frame: &Frame<L>,
        start: &Start<Self>,
        [src, dst]: [u32; 2],
        ports: u32,
        difference: u32,
    ) -> Result<(), OutOfBounds> {
        // The checksum, the addresses and the ports lie side by side, from the second half of a word on.
        const CHECKSUM: u32 = 10;

        let sum = u64::from(!start.ip.checksum) + u64::from(difference);
        let [high, low] = fold(sum).to_ne_bytes();
        let words = [u32::from_ne_bytes([0, 0, high, low]), src, dst, ports];
        frame.store_from(frame.l3 + CHECKSUM, &words, 2, 0)
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
