//! ICMP: errors about translated packets, and echo requests to a VIP.

use core::borrow::Borrow as _;

use mcs_common::{Counter, FlowFlags, Tuple};

use super::{
    NEXT, drop_counted, flows,
    frame::{Frame, Link, OutOfBounds},
    ip::{Header, Ip, Piece, checksum_difference, fold, protocol},
    rewrite::{addresses, ports, replace_l4},
    scratch::Scratch,
    transport::checksum_offset,
};
use crate::counters::count;

/// Bytes of an ICMP message before its payload: in an error, the packet that it is about.
const HEADER: u32 = 8;
/// Where the checksum of an ICMP message stands in it.
const CHECKSUM: u32 = 2;

/// The verdict on ICMP that a pod sends to a VIP.
#[inline(always)]
pub(crate) fn to_vip<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    scratch: &mut Scratch,
) -> i32 {
    if header.piece != Piece::Whole {
        return drop_counted(Counter::PacketDroppedIcmp);
    }
    let Ok(kind) = kind(frame, header) else {
        return drop_counted(Counter::PacketDroppedMalformed);
    };
    if kind == F::ECHO_REQUEST {
        return match answer_echo::<F, L>(frame, header, &scratch.tuple) {
            Ok(verdict) => {
                count(Counter::EchoAnswered);
                verdict
            }
            Err(OutOfBounds) => drop_counted(Counter::PacketDroppedMalformed),
        };
    }
    if !F::is_error(kind) {
        return drop_counted(Counter::PacketDroppedIcmp);
    }
    let Some(inner) = find::<F, L>(frame, header, header.l4 + HEADER, scratch) else {
        return drop_counted(Counter::PacketDroppedIcmp);
    };
    if translate::<F, L>(frame, header, scratch, &inner).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(Counter::IcmpTranslated);
    if scratch.flow.flags & FlowFlags::HAIRPIN == 0 {
        return NEXT;
    }
    frame.send_back().unwrap_or_else(|_| drop_counted(Counter::PacketDroppedFailed))
}

/// The verdict on ICMP that goes to a pod.
#[inline(always)]
pub(crate) fn to_pod<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    scratch: &mut Scratch,
) -> i32 {
    let Ok(kind) = kind(frame, header) else { return NEXT };
    if header.piece != Piece::Whole {
        return NEXT;
    }
    // A redirect is about the way to one backend. A client that took it for the way to the VIP would
    // send all flows there.
    if let Some(redirected) = F::redirected(frame, header.l4, kind) {
        return match find::<F, L>(frame, header, redirected, scratch) {
            Some(_) => drop_counted(Counter::RedirectDropped),
            None => NEXT,
        };
    }
    if !F::is_error(kind) {
        return NEXT;
    }
    let Some(inner) = find::<F, L>(frame, header, header.l4 + HEADER, scratch) else {
        return NEXT;
    };
    // What is about a pod's packets to itself was translated when it came from the pod.
    if scratch.flow.flags & (FlowFlags::REPLY | FlowFlags::HAIRPIN) != FlowFlags::REPLY {
        return NEXT;
    }
    if translate::<F, L>(frame, header, scratch, &inner).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(Counter::IcmpTranslated);
    NEXT
}

/// The type of the message.
#[inline(always)]
fn kind<L: Link>(frame: &Frame<L>, header: &Header) -> Result<u8, OutOfBounds> {
    // Behind the end by its header there may be padding.
    if header.end - header.l4 < HEADER { Err(OutOfBounds) } else { frame.load(header.l4) }
}

/// Turns an echo request into its reply.
#[inline(always)]
fn answer_echo<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    tuple: &Tuple,
) -> Result<i32, OutOfBounds> {
    let old: u16 = frame.load(header.l4)?;
    let [_, code] = old.to_ne_bytes();
    let new = u16::from_ne_bytes([F::ECHO_REPLY, code]);
    replace_l4(frame, header.l4 + CHECKSUM, old.into(), new.into(), 2)?;
    frame.store(header.l4, &new, 0)?;
    // What changes places adds up to the same sum.
    addresses::<F, L>(frame, frame.l3, 0, F::addresses(&tuple.reversed()).borrow())?;
    frame.send_back()
}

/// The packet inside a message, at `quote`: its header, its ends in `scratch.inner`, and in
/// `scratch.flow` the flow that it is of: the entry for packets the other way.
#[inline(always)]
fn find<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    quote: u32,
    scratch: &mut Scratch,
) -> Option<Header> {
    let inner = F::parse(frame, quote, true, &mut scratch.inner).ok()?;
    let (inner, _) = inner.anew(quote, &mut scratch.header);
    // Else it is about packets that its sender has neither sent nor got.
    if scratch.tuple.dst != scratch.inner.src {
        return None;
    }
    let has_ports = inner.protocol == protocol::TCP || inner.protocol == protocol::UDP;
    if !has_ports || inner.piece == Piece::Later || inner.l4 + 8 > header.end {
        return None;
    }
    let [src, dst]: [u16; 2] = frame.load(inner.l4).ok()?;
    scratch.inner.src_port = u16::from_be(src);
    scratch.inner.dst_port = u16::from_be(dst);
    scratch.other_key = scratch.inner.reversed();
    flows::find(&scratch.other_key)?.read(&mut scratch.flow);
    Some(inner)
}

/// Makes the packet inside what its sender knows, and with it the ends of the error.
#[inline(always)]
fn translate<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    scratch: &mut Scratch,
    inner: &Header,
) -> Result<(), OutOfBounds> {
    scratch.other_key = scratch.flow.to.reversed();
    let (from, to) = (&scratch.inner, &scratch.other_key);
    quoted::<F, L>(frame, header, inner, from, to)?;

    // The error may come from the far end itself, or from a router on the way.
    scratch.spare = scratch.tuple;
    if scratch.tuple.src == from.dst {
        scratch.spare.src = to.dst;
    }
    if scratch.tuple.dst == from.src {
        scratch.spare.dst = to.src;
    }
    let (old, new) = (F::addresses(&scratch.tuple), F::addresses(&scratch.spare));
    let difference = checksum_difference(old.borrow(), new.borrow());
    if F::CHECKSUM.is_none() {
        let pseudo = u64::from(aya_ebpf::bindings::BPF_F_PSEUDO_HDR);
        replace_l4(frame, header.l4 + CHECKSUM, 0, difference, pseudo)?;
    }
    addresses::<F, L>(frame, frame.l3, difference, new.borrow())
}

/// Rewrites the packet inside an error, and the error's checksum by what that changes.
#[inline(always)]
fn quoted<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    inner: &Header,
    from: &Tuple,
    to: &Tuple,
) -> Result<(), OutOfBounds> {
    let (old, new) = (F::addresses(from), F::addresses(to));
    let moved = checksum_difference(old.borrow(), new.borrow());
    let (old_ports, new_ports) = (ports(from), ports(to));
    let renumbered = checksum_difference(&old_ports, &new_ports);
    // A change of addresses changes the sum of an IPv6 header, and not that of an IPv4 header, which
    // has a checksum of its own.
    let mut difference = renumbered + if F::CHECKSUM.is_none() { moved } else { 0 };

    let at = inner.l4 + checksum_offset(inner.protocol);
    if at + 2 <= header.end {
        let old: u16 = frame.load(at)?;
        let none = inner.protocol == protocol::UDP && old == 0;
        if !none {
            let mut new = fold(u64::from(!old) + moved + renumbered);
            if inner.protocol == protocol::UDP && new == 0 {
                new = 0xffff;
            }
            difference += checksum_difference(&u32::from(old), &u32::from(new));
            frame.store(at, &new, 0)?;
        }
    }
    frame.store(inner.l4, &new_ports, 0)?;
    let l3 = header.l4 + HEADER;
    if let Some(checksum) = F::CHECKSUM {
        let at = l3 + checksum;
        let old: u16 = frame.load(at)?;
        frame.store(at, &fold(u64::from(!old) + moved), 0)?;
    }
    frame.store(l3 + F::ADDRESSES, new.borrow(), 0)?;
    let folded = (difference & 0xffff_ffff) + (difference >> 32);
    replace_l4(frame, header.l4 + CHECKSUM, 0, (folded & 0xffff_ffff) + (folded >> 32), 0)
}
