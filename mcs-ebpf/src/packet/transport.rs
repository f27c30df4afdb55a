//! Reads the TCP and UDP headers: ports, TCP flags, and the offset of the checksum.

use mcs_common::Tuple;

use super::{
    frame::{Frame, LinkLayer},
    ip::{FragmentPosition, IpHeader, Malformed, protocol},
};

/// The offset of the checksum in a TCP or UDP header, in bytes.
#[inline(always)]
pub(crate) const fn checksum_offset(protocol: u8) -> u32 {
    if protocol == protocol::TCP { 16 } else { 6 }
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
