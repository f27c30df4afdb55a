//! Replaces the addresses, ports and checksums of a packet.

use core::borrow::Borrow as _;

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM},
    helpers::{bpf_l3_csum_replace, bpf_l4_csum_replace},
};
use mcs_common::Tuple;

use super::{
    frame::{Frame, LinkLayer, OutOfBounds},
    header::{FragmentPosition, IpHeader, protocol},
    ip::{IpVersion, checksum_difference},
    transport::checksum_offset,
};

/// Replaces the ends `from` of a TCP or UDP packet, or of a fragment of one, by `to`.
///
/// The helpers apply the difference to the checksum: only they know whether it is complete or left
/// to the device (`CHECKSUM_PARTIAL`).
#[inline(always)]
pub(crate) fn rewrite<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    from: &Tuple,
    to: &Tuple,
) -> Result<(), OutOfBounds> {
    let (old, new) = (F::addresses(from), F::addresses(to));
    let difference = checksum_difference(old.borrow(), new.borrow());
    if header.fragment != FragmentPosition::Later {
        let at = header.l4 + checksum_offset(header.protocol);
        let (old, new) = (ports(from), ports(to));
        if header.protocol == protocol::UDP && frame.load::<u16>(at)? == 0 {
            // There is no UDP checksum whose change would cancel out that of the ports in a sum over
            // the whole packet (`CHECKSUM_COMPLETE`), so the kernel computes that sum again.
            frame.store(header.l4, &new, u64::from(BPF_F_RECOMPUTE_CSUM))?;
        } else {
            replace_checksum(frame, header.protocol, at, difference, [old, new])?;
            if old != new {
                frame.store(header.l4, &new, 0)?;
            }
        }
    }
    addresses::<F, L>(frame, frame.l3, difference, new.borrow())
}

/// Changes the checksum at `at` of a TCP or UDP packet, whose addresses change by `difference`, and whose ports change
/// from the first to the second of `ports`.
#[inline(always)]
pub(crate) fn replace_checksum<L: LinkLayer>(
    frame: &Frame<L>,
    protocol: u8,
    at: u32,
    difference: u64,
    [old, new]: [u32; 2],
) -> Result<(), OutOfBounds> {
    // A UDP checksum that becomes 0 is sent as 0xffff.
    let mangled = if protocol == protocol::UDP { u64::from(BPF_F_MARK_MANGLED_0) } else { 0 };
    replace_l4(frame, at, 0, difference, mangled | u64::from(BPF_F_PSEUDO_HDR))?;
    if old == new {
        return Ok(());
    }
    replace_l4(frame, at, old.into(), new.into(), mangled | 4)
}

/// Writes the addresses of the IP header at `l3`, whose checksum changes by `difference`.
#[inline(always)]
pub(crate) fn addresses<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    l3: u32,
    difference: u64,
    new: &F::AddressPair,
) -> Result<(), OutOfBounds> {
    if let Some(checksum) = F::CHECKSUM {
        // SAFETY: the helper takes the context itself.
        let result = unsafe {
            bpf_l3_csum_replace(frame.ctx.as_ptr().cast(), l3 + checksum, 0, difference, 0)
        };
        if result != 0 {
            return Err(OutOfBounds);
        }
    }
    frame.store(l3 + F::ADDRESSES, new, F::STORE_FLAGS)
}

/// Changes the TCP, UDP or ICMP checksum at `at` as `bpf_l4_csum_replace` does.
#[inline(always)]
pub(crate) fn replace_l4<L: LinkLayer>(
    frame: &Frame<L>,
    at: u32,
    from: u64,
    to: u64,
    flags: u64,
) -> Result<(), OutOfBounds> {
    // SAFETY: the helper takes the context itself.
    let result = unsafe { bpf_l4_csum_replace(frame.ctx.as_ptr().cast(), at, from, to, flags) };
    if result == 0 { Ok(()) } else { Err(OutOfBounds) }
}

/// Both ports as a header holds them: source and destination, each in network order.
#[inline(always)]
pub(crate) const fn ports(tuple: &Tuple) -> u32 {
    header_ports(tuple.src_port, tuple.dst_port)
}

/// Two ports in host order, as a header holds them.
#[inline(always)]
pub(crate) const fn header_ports(src: u16, dst: u16) -> u32 {
    let (src, dst) = (src.to_be() as u32, dst.to_be() as u32);
    if cfg!(target_endian = "little") { src | (dst << 16) } else { (src << 16) | dst }
}
