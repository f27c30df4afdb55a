//! Reads and writes IPv6 headers.

use core::{mem::offset_of, ptr};

use aya_ebpf::bindings::BPF_F_RECOMPUTE_CSUM;
use bytemuck::AnyBitPattern;
use mcs_common::{Address, Tuple};

use super::{HOPS, IpVersion, Start, sum};
use crate::packet::{
    frame::{Frame, LinkLayer, OutOfBounds},
    header::{FragmentPosition, IpHeader, Malformed},
};

/// The headers of IPv6.
pub(crate) struct Ipv6;

/// The part of the header before the addresses.
#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
struct Ipv6FixedHeader {
    version_class_flow: u32,
    payload: u16,
    next: u8,
    hops: u8,
}

#[derive(Clone, Copy, AnyBitPattern)]
#[repr(C)]
pub(crate) struct Ipv6Header {
    fixed: Ipv6FixedHeader,
    addresses: [u32; 8],
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
    type Header = Ipv6Header;
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
    fn protocol(header: &Ipv6Header) -> u8 {
        header.fixed.next
    }

    #[inline(always)]
    fn pair(header: &Ipv6Header) -> &[u32; 8] {
        &header.addresses
    }

    #[inline(always)]
    fn ends(pair: &[u32; 8]) -> (Address, Address) {
        let [s0, s1, s2, s3, d0, d1, d2, d3] = *pair;
        (Address::from_words([s0, s1, s2, s3]), Address::from_words([d0, d1, d2, d3]))
    }

    #[inline(always)]
    fn plain_payload(header: &Ipv6Header, len: u32) -> Option<u32> {
        let payload = u32::from(u16::from_be(header.fixed.payload));
        let version = u32::from_be(header.fixed.version_class_flow) >> 28;
        (version == 6 && payload + 40 <= len).then_some(payload)
    }

    #[inline(always)]
    unsafe fn read_pair(tuple: *const Tuple) -> [u32; 8] {
        let mut words = [0; 8];
        for (word, to) in words.iter_mut().enumerate() {
            // SAFETY: the caller guarantees it. The first 32 bytes of a tuple are its addresses.
            *to = unsafe { tuple.cast::<u32>().add(word).read_volatile() };
        }
        words
    }

    #[inline(always)]
    fn store_ends<L: LinkLayer>(
        frame: &Frame<L>,
        start: &Start<Self>,
        pair: [u32; 8],
        ports: u32,
        _: u32,
    ) -> Result<(), OutOfBounds> {
        frame.store(frame.l3 + Self::ADDRESSES, &pair, Self::STORE_FLAGS)?;
        // Not at once with the addresses: a change of the ports cancels out with that of the checksum.
        if start.transport.ports() == ports {
            return Ok(());
        }
        frame.store(frame.l3 + 40, &ports, 0)
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
