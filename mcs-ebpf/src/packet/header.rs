//! The contents of an IP header, of either version.

use core::ptr;

use super::frame::OutOfBounds;

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
    pub(crate) const fn of(offset: u16, more: bool) -> Self {
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
