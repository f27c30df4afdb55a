//! Translates ICMP errors about packets of flows, and answers echo requests to a VIP.

use core::borrow::Borrow as _;

use mcs_common::{Counter, FlowFlags, Tuple, VipMode};

use super::{
    flows,
    frame::{Frame, LinkLayer, OutOfBounds},
    header::{FragmentPosition, IpHeader, protocol},
    ip::{IpVersion, checksum_difference, fold},
    rewrite::{addresses, ports, replace_l4},
    transport::checksum_offset,
    verdict::{NEXT, drop_counted, drop_or_pass},
};
use crate::{counters::count, per_cpu::Scratch};

/// The size of an ICMP header in bytes. In an error, the packet that it is about follows.
const HEADER: u32 = 8;
/// The offset of the checksum in an ICMP header, in bytes.
const CHECKSUM: u32 = 2;

/// Decides about an ICMP message that a pod sends to a VIP.
#[inline(always)]
pub(crate) fn to_vip<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
    mode: u32,
) -> i32 {
    if header.fragment != FragmentPosition::Unfragmented {
        return drop_or_pass(mode, Counter::PacketDroppedIcmp);
    }
    let Ok(kind) = kind(frame, header) else {
        return drop_or_pass(mode, Counter::PacketDroppedMalformed);
    };
    if kind == F::ECHO_REQUEST && mode == VipMode::SERVED {
        return match answer_echo::<F, L>(frame, header, &scratch.tuple) {
            Ok(verdict) => {
                count(Counter::EchoAnswered);
                verdict
            }
            Err(OutOfBounds) => drop_counted(Counter::PacketDroppedMalformed),
        };
    }
    if !F::is_error(kind) {
        return drop_or_pass(mode, Counter::PacketDroppedIcmp);
    }
    let Some(inner) = quoted::<F, L>(frame, header, header.l4 + HEADER, scratch) else {
        return drop_or_pass(mode, Counter::PacketDroppedIcmp);
    };
    let flow = flows::find(&scratch.opposite_key);
    if let Some(flow) = flow {
        flow.read(&mut scratch.flow);
    }
    // The former server of the VIP sent the quoted packet.
    if flow.is_none() || scratch.flow.flags & FlowFlags::PASSED != 0 {
        count(Counter::PacketPassed);
        return NEXT;
    }
    if translate::<F, L>(frame, header, scratch, &inner).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(Counter::IcmpTranslated);
    if scratch.flow.flags & FlowFlags::HAIRPIN == 0 {
        if is_disowned::<F, L>(frame, header, scratch) {
            scratch.tuple = scratch.inner.reversed();
            flows::end(scratch);
        }
        return NEXT;
    }
    frame.send_back().unwrap_or_else(|_| drop_counted(Counter::PacketDroppedFailed))
}

/// Whether a pod says that it has no socket for the UDP reply that the message quotes. The flow's socket is closed then. A
/// socket that is connected to the backend directly may have its port, and gets no reply while the flow lives.
#[inline(always)]
fn is_disowned<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &Scratch,
) -> bool {
    scratch.inner.protocol == protocol::UDP
        // A router, or a rule on the way, knows nothing of sockets.
        && scratch.inner.dst == scratch.tuple.src
        && frame.load::<[u8; 2]>(header.l4).is_ok_and(|kind| kind == F::PORT_UNREACHABLE)
}

/// Decides about an ICMP message that a pod receives.
#[inline(always)]
pub(crate) fn to_pod<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
) -> i32 {
    let Ok(kind) = kind(frame, header) else { return NEXT };
    if header.fragment != FragmentPosition::Unfragmented {
        return NEXT;
    }
    // A redirect names a better router to one backend. The client would take it for the router to
    // the VIP and send all flows there.
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
    // An error about a hairpin flow was translated when the pod sent it.
    let foreign = FlowFlags::HAIRPIN | FlowFlags::PASSED;
    if scratch.flow.flags & (FlowFlags::REPLY | foreign) != FlowFlags::REPLY {
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
fn kind<L: LinkLayer>(frame: &Frame<L>, header: &IpHeader) -> Result<u8, OutOfBounds> {
    // The frame may end with padding, so the IP header's length counts.
    if header.end - header.l4 < HEADER { Err(OutOfBounds) } else { frame.load(header.l4) }
}

/// Turns an echo request into its reply and sends it back.
#[inline(always)]
fn answer_echo<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    tuple: &Tuple,
) -> Result<i32, OutOfBounds> {
    let old: u16 = frame.load(header.l4)?;
    let [_, code] = old.to_ne_bytes();
    let new = u16::from_ne_bytes([F::ECHO_REPLY, code]);
    replace_l4(frame, header.l4 + CHECKSUM, old.into(), new.into(), 2)?;
    frame.store(header.l4, &new, 0)?;
    // Swapped words add up to the same checksum.
    addresses::<F, L>(frame, frame.l3, 0, F::addresses(&tuple.reversed()).borrow())?;
    frame.send_back()
}

/// Reads the packet that a message quotes as [`quoted`] does, and stores its flow in `scratch.flow`: the
/// entry for the opposite direction.
#[inline(always)]
fn find<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    quote: u32,
    scratch: &mut Scratch,
) -> Option<IpHeader> {
    let inner = quoted::<F, L>(frame, header, quote, scratch)?;
    flows::find(&scratch.opposite_key)?.read(&mut scratch.flow);
    Some(inner)
}

/// Reads the packet that a message quotes at offset `quote`. Returns its header, stores its ends in
/// `scratch.inner`, and reversed in `scratch.opposite_key`.
#[inline(always)]
fn quoted<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    quote: u32,
    scratch: &mut Scratch,
) -> Option<IpHeader> {
    let inner = F::parse(frame, quote, true, &mut scratch.inner).ok()?;
    let (inner, _) = inner.reload(quote, &mut scratch.header);
    // The error goes to the host that sent the quoted packet, or it is forged.
    if scratch.tuple.dst != scratch.inner.src {
        return None;
    }
    let has_ports = inner.protocol == protocol::TCP || inner.protocol == protocol::UDP;
    if !has_ports || inner.fragment == FragmentPosition::Later || inner.l4 + 8 > header.end {
        return None;
    }
    let [src, dst]: [u16; 2] = frame.load(inner.l4).ok()?;
    scratch.inner.src_port = u16::from_be(src);
    scratch.inner.dst_port = u16::from_be(dst);
    scratch.opposite_key = scratch.inner.reversed();
    Some(inner)
}

/// Replaces the ends of the quoted packet by the ends that its sender used, and then the ends of the
/// error itself.
#[inline(always)]
fn translate<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
    inner: &IpHeader,
) -> Result<(), OutOfBounds> {
    scratch.opposite_key = scratch.flow.to.reversed();
    let (from, to) = (&scratch.inner, &scratch.opposite_key);
    rewrite_quoted::<F, L>(frame, header, inner, from, to)?;

    // The sender of the error is the backend itself or a router on the way.
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

/// Rewrites the packet that an error quotes, and adjusts the error's checksum.
#[inline(always)]
fn rewrite_quoted<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    inner: &IpHeader,
    from: &Tuple,
    to: &Tuple,
) -> Result<(), OutOfBounds> {
    let (old, new) = (F::addresses(from), F::addresses(to));
    let moved = checksum_difference(old.borrow(), new.borrow());
    let (old_ports, new_ports) = (ports(from), ports(to));
    let renumbered = checksum_difference(&old_ports, &new_ports);
    // New addresses change the sum over an IPv6 header. The sum over an IPv4 header stays, because its
    // own checksum changes by the opposite amount.
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
