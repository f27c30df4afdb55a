//! Reads the TCP and UDP headers: ports, TCP flags, and the offset of the checksum.

use mcs_common::Tuple;

use super::{
    frame::{Frame, LinkLayer},
    header::{FragmentPosition, IpHeader, Malformed, protocol},
};

/// The offset of the checksum in a TCP or UDP header, in bytes.
#[inline(always)]
pub(crate) const fn checksum_offset(protocol: u8) -> u32 {
    if protocol == protocol::TCP { 16 } else { 6 }
}

/// The offset of the flags in a TCP header, in bytes.
pub(crate) const TCP_FLAGS: u32 = 13;

/// The first 16 bytes of a TCP or UDP packet, or 8 and zeros for a short one.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct TransportStart([u32; 4]);

impl TransportStart {
    /// Both ports, as the header holds them.
    #[inline(always)]
    pub(crate) const fn ports(&self) -> u32 {
        self.0[0]
    }

    /// Source and destination port, in host order.
    #[inline(always)]
    pub(crate) const fn source_and_destination(&self) -> (u16, u16) {
        let [s0, s1, d0, d1] = self.0[0].to_ne_bytes();
        (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]))
    }

    /// The flags of the TCP header, and 0 for UDP, of a packet with `room` bytes behind the IP header. `None` if it
    /// is malformed, of another protocol, or has no checksum.
    #[inline(always)]
    pub(crate) const fn flags(&self, protocol: u8, room: u32) -> Option<u32> {
        if protocol == protocol::TCP {
            let [offset, bits, _, _] = self.0[3].to_ne_bytes();
            let length = (offset >> 4) as u32 * 4;
            if length < 20 || length > room { None } else { Some(bits as u32) }
        } else if protocol == protocol::UDP {
            let [l0, l1, c0, c1] = self.0[1].to_ne_bytes();
            let length = u16::from_be_bytes([l0, l1]) as u32;
            if length < 8 || length > room || (c0 | c1) == 0 { None } else { Some(0) }
        } else {
            None
        }
    }
}

/// Reads the ports of a TCP or UDP packet, unfragmented or a first fragment, into its tuple. Returns
/// the flags of the TCP header, as `Seen` names them, and 0 for UDP.
#[inline(always)]
pub(crate) fn read<L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    tuple: &mut Tuple,
) -> Result<u32, Malformed> {
    let room = header.end.wrapping_sub(header.l4);
    let [src_port, dst_port, third, _]: [u16; 4] = frame.load(header.l4)?;
    let mut flags = 0;
    if header.protocol == protocol::TCP {
        let [offset, bits]: [u8; 2] = frame.load(header.l4 + 12)?;
        let length = u32::from(offset >> 4) * 4;
        if length < 20 || length > room {
            return Err(Malformed);
        }
        flags = u32::from(bits);
    } else {
        let length = u32::from(u16::from_be(third));
        // A first fragment is shorter than its datagram. A datagram above 64 KiB, which only
        // segmentation offload makes, has the length 0.
        let fits = header.fragment == FragmentPosition::First || length <= room;
        if room < 8 || (length < 8 && !(length == 0 && frame.is_gso())) || !fits {
            return Err(Malformed);
        }
    }
    tuple.src_port = u16::from_be(src_port);
    tuple.dst_port = u16::from_be(dst_port);
    Ok(flags)
}
