//! Writing other addresses and ports into a packet.

use core::borrow::Borrow as _;

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM},
    helpers::{bpf_l3_csum_replace, bpf_l4_csum_replace},
};
use mcs_common::Tuple;

use super::{
    frame::{Frame, Link, OutOfBounds},
    ip::{Header, Ip, Piece, checksum_difference, protocol},
    transport::checksum_offset,
};

/// Makes a TCP or UDP packet, or a piece of one, `to` instead of `from`.
///
/// Checksums are changed by the difference, since only the helpers know whether a checksum is
/// finished or left to the device (`CHECKSUM_PARTIAL`).
#[inline(always)]
pub(crate) fn rewrite<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    from: &Tuple,
    to: &Tuple,
) -> Result<(), OutOfBounds> {
    let (old, new) = (F::addresses(from), F::addresses(to));
    let difference = checksum_difference(old.borrow(), new.borrow());
    if header.piece != Piece::Later {
        let at = header.l4 + checksum_offset(header.protocol);
        let udp = header.protocol == protocol::UDP;
        let (old, new) = (ports(from), ports(to));
        if udp && frame.load::<u16>(at)? == 0 {
            // No checksum, and none that would make up for the change in one over the whole packet.
            frame.store(header.l4, &new, u64::from(BPF_F_RECOMPUTE_CSUM))?;
        } else {
            // A UDP checksum that becomes 0 is sent as 0xffff.
            let mangled = if udp { u64::from(BPF_F_MARK_MANGLED_0) } else { 0 };
            replace_l4(frame, at, 0, difference, mangled | u64::from(BPF_F_PSEUDO_HDR))?;
            if old != new {
                replace_l4(frame, at, old.into(), new.into(), mangled | 4)?;
                frame.store(header.l4, &new, 0)?;
            }
        }
    }
    addresses::<F, L>(frame, frame.l3, difference, new.borrow())
}

/// Writes the addresses of an IP header, whose sum changes by `difference`.
#[inline(always)]
pub(crate) fn addresses<F: Ip, L: Link>(
    frame: &Frame<L>,
    l3: u32,
    difference: u64,
    new: &F::Pair,
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

/// Changes the checksum at `at` as `bpf_l4_csum_replace` does.
#[inline(always)]
pub(crate) fn replace_l4<L: Link>(
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

/// Both ports as they stand in a header.
#[inline(always)]
pub(crate) const fn ports(tuple: &Tuple) -> u32 {
    let (src, dst) = (tuple.src_port.to_be() as u32, tuple.dst_port.to_be() as u32);
    if cfg!(target_endian = "little") { src | (dst << 16) } else { (src << 16) | dst }
}
