//! Refusing a packet so that its sender knows at once.

use core::borrow::Borrow as _;

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_F_RECOMPUTE_CSUM, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers::{bpf_skb_adjust_room, bpf_skb_change_tail},
};
use mcs_common::{Counter, Seen, Tuple};

use super::{
    DROP,
    flows::now_ns,
    frame::{Frame, Link, OutOfBounds},
    ip::{Header, Ip, Piece, checksum_difference, fold, protocol},
    rewrite::{addresses, replace_l4},
    scratch::scratch,
};
use crate::{
    counters::{count, count_at},
    maps::REFUSALS,
};

/// Answers to refused packets that this CPU may still give, in nanoseconds of [`COST_NS`] each.
#[repr(C)]
pub(crate) struct Budget {
    credit_ns: u64,
    refilled_ns: u64,
}

/// A thousand answers a second and CPU, as the kernel's `icmp_msgs_per_sec`.
const COST_NS: u64 = 1_000_000;
/// A hundred of them at once.
const BURST_NS: u64 = 100 * COST_NS;

/// Answers a packet to a VIP that goes nowhere: TCP with a reset, all else with ICMP port
/// unreachable. `flags` are those of the TCP header, `reason` is a [`Counter`]. The verdict.
#[inline(always)]
pub(crate) fn refuse<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    flags: u32,
    reason: u32,
) -> i32 {
    count_at(reason);
    let Some(scratch) = scratch() else { return DROP };
    let tcp = header.protocol == protocol::TCP;
    let silent = reason == Counter::PacketDroppedFailed as u32
        // A reset is never answered (RFC 9293, 3.10.7.1). Segments for the device to cut share one
        // header; what is sent again after a timeout is a single one.
        || (tcp && (flags & Seen::RST != 0 || frame.is_gso() || header.piece != Piece::Whole));
    if silent {
        count(Counter::RefusalSilent);
        return DROP;
    }
    if !may_answer() {
        count(Counter::RefusalLimited);
        return DROP;
    }
    let answer = if tcp {
        reset::<F, L>(frame, header, &scratch.tuple, flags)
    } else {
        unreachable::<F, L>(frame, header, &scratch.tuple)
    };
    match answer.and_then(|()| frame.send_back()) {
        Ok(verdict) => verdict,
        Err(OutOfBounds) => {
            count(Counter::RefusalSilent);
            DROP
        }
    }
}

#[inline(always)]
fn may_answer() -> bool {
    let Some(budget) = REFUSALS.get_ptr_mut(0) else { return false };
    // SAFETY: the pointer is to this CPU's value of the map.
    let budget = unsafe { &mut *budget };
    let now = now_ns();
    let mut credit = budget.credit_ns.saturating_add(now.saturating_sub(budget.refilled_ns));
    if credit > BURST_NS {
        credit = BURST_NS;
    }
    let enough = credit >= COST_NS;
    budget.credit_ns = if enough { credit - COST_NS } else { credit };
    budget.refilled_ns = now;
    enough
}

/// Turns a TCP segment into the reset that answers it, in place: its checksum may be left to a
/// device that would finish it where it stands now (`CHECKSUM_PARTIAL`), so neither length nor
/// place may change.
#[inline(always)]
fn reset<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    tuple: &Tuple,
    flags: u32,
) -> Result<(), OutOfBounds> {
    const OFFSET: u32 = 0xf000_0000;
    const FLAGS: u32 = 16;

    let old: [u32; 3] = frame.load(header.l4 + 4)?;
    let [sequence, acknowledged, offset] = old;
    let offset = u32::from_be(offset) & OFFSET;
    // RFC 9293, 3.5.2: a reset has the number that is expected, or else acknowledges all there is.
    let new = if flags & Seen::ACK != 0 {
        [acknowledged, 0, (offset | (Seen::RST << FLAGS)).to_be()]
    } else {
        let data = header.end - header.l4 - (offset >> 28) * 4;
        let control = u32::from(flags & Seen::SYN != 0) + u32::from(flags & Seen::FIN != 0);
        let next = u32::from_be(sequence).wrapping_add(data + control);
        [0, next.to_be(), (offset | ((Seen::RST | Seen::ACK) << FLAGS)).to_be()]
    };
    let difference = checksum_difference(&old, &new);
    replace_l4(frame, header.l4 + 16, 0, difference, 0)?;
    frame.store(header.l4 + 4, &new, 0)?;
    // What changes places adds up to the same sum.
    let ports: [u16; 2] = frame.load(header.l4)?;
    frame.store(header.l4, &[ports[1], ports[0]], 0)?;
    addresses::<F, L>(frame, frame.l3, 0, F::addresses(&tuple.reversed()).borrow())
}

/// Bytes of the refused packet's payload that an ICMP error quotes: at least (RFC 792), and enough
/// for a socket to be found by.
const QUOTED: u32 = 8;
/// Words of it, headers included, that are summed.
const QUOTED_WORDS: u32 = 24;

/// Turns a packet into the ICMP error that says so.
#[inline(always)]
fn unreachable<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    tuple: &Tuple,
) -> Result<(), OutOfBounds> {
    let recompute = u64::from(BPF_F_RECOMPUTE_CSUM);
    let quoted = header.l4 - frame.l3 + QUOTED;
    // A tag that is part of the packet would not stay in front of it.
    if frame.l3 != L::HEADER || header.end - header.l4 < QUOTED || quoted > QUOTED_WORDS * 4 {
        return Err(OutOfBounds);
    }
    if header.protocol == protocol::UDP {
        let [src, dst, length]: [u16; 3] = frame.load(header.l4)?;
        let sum = u32::from(src) + u32::from(dst) + u32::from(length);
        frame.store(header.l4 + 6, &steady_checksum(sum), recompute)?;
    }
    let mut sum = 0_u64;
    for word in 0..QUOTED_WORDS {
        if word * 4 >= quoted {
            break;
        }
        sum += u64::from(frame.load::<u32>(frame.l3 + word * 4)?);
    }
    let length = 8 + quoted as u16;
    let ends = tuple.reversed();
    let kind = F::PORT_UNREACHABLE;
    sum += u64::from(u16::from_ne_bytes(kind)) + F::pseudo_sum(&ends, length);

    resize(frame, frame.l3 + quoted, size_of::<F::Plain>() as u32 + 8)?;
    frame.store(frame.l3, &F::plain(&ends, length), recompute)?;
    let message = [u16::from_ne_bytes(kind), fold(sum), 0, 0];
    frame.store(frame.l3 + size_of::<F::Plain>() as u32, &message, recompute)
}

/// Cuts the packet to `length` bytes, and makes `room` for more after the link header.
#[inline(always)]
fn resize<L: Link>(frame: &Frame<L>, length: u32, room: u32) -> Result<(), OutOfBounds> {
    // SAFETY: both helpers take the context itself.
    let result = unsafe {
        let result = bpf_skb_change_tail(frame.ctx.as_ptr().cast(), length, 0);
        if result == 0 {
            bpf_skb_adjust_room(frame.ctx.as_ptr().cast(), room.cast_signed(), BPF_ADJ_ROOM_MAC, 0)
        } else {
            result
        }
    };
    if result == 0 { Ok(()) } else { Err(OutOfBounds) }
}

/// A checksum for a quoted UDP header whose other three words add up to `sum`, such that a device
/// which finishes it (`CHECKSUM_PARTIAL`: it writes the complement of the sum of what stands there)
/// writes the same again. Else it would spoil the checksum of the ICMP message around it.
///
/// It is `c = -(sum + c)` in one's complement, hence half of `-sum`; 2 * 32768 = 1 modulo 65535.
#[inline(always)]
const fn steady_checksum(sum: u32) -> u16 {
    const HALF: u64 = 32_768;
    let sum = sum as u64 % 65_535;
    let checksum = (65_535 - sum) * HALF % 65_535;
    // 0 would mean that there is none.
    if checksum == 0 { 0xffff } else { checksum as u16 }
}
