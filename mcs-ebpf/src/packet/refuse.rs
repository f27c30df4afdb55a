//! Refusing a packet so that its sender knows at once.

use core::{borrow::Borrow as _, ptr};

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_F_RECOMPUTE_CSUM, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers::{bpf_skb_adjust_room, bpf_skb_change_tail},
};
use mcs_common::{Counter, Seen, Tuple};

use super::{
    DROP,
    flows::now_ns,
    frame::{Frame, Link, OutOfBounds, bytes_of},
    ip::{Header, Ip, Piece, checksum_difference, fold, protocol},
    rewrite::{addresses, replace_l4},
    scratch::{Scratch, scratch},
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
        unreachable::<F, L>(frame, header, scratch)
    };
    if let Ok(verdict) = answer.and_then(|()| frame.send_back()) {
        return verdict;
    }
    count(Counter::RefusalSilent);
    DROP
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
/// Words of it that are quoted at most, headers included.
pub(super) const QUOTED_WORDS: usize = 24;
const QUOTED_BYTES: u32 = bytes_of::<[u32; QUOTED_WORDS]>();

/// Turns a packet into the ICMP error that says so.
#[inline(always)]
fn unreachable<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    scratch: &mut Scratch,
) -> Result<(), OutOfBounds> {
    let quoted = header.l4 - frame.l3 + QUOTED;
    // A tag that is part of the packet would not stay in front of it.
    let tagged = frame.l3 != L::HEADER;
    if tagged || header.end - header.l4 < QUOTED || quoted > QUOTED_BYTES {
        return Err(OutOfBounds);
    }
    // LLVM must not know that it fits: it would leave out the loops' own bound, and the verifiers of
    // older kernels lose the other one.
    scratch.quoted = quoted;
    // SAFETY: a reference.
    let quoted = unsafe { ptr::from_ref(&scratch.quoted).read_volatile() };
    let mut sum = 0_u64;
    for (word, offset) in scratch.quote.iter_mut().zip((0..QUOTED_BYTES).step_by(4)) {
        if offset >= quoted {
            break;
        }
        *word = frame.load(frame.l3 + offset)?;
        sum += u64::from(*word);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it fits")]
    let length = 8 + quoted as u16;
    scratch.spare = scratch.tuple.reversed();
    let ends = &scratch.spare;
    let kind = u16::from_ne_bytes(F::PORT_UNREACHABLE);
    sum += u64::from(kind) + F::pseudo_sum(ends, length);

    let plain = bytes_of::<F::Plain>();
    make_anew(frame, header.l4, frame.l3 + plain + u32::from(length))?;
    let recompute = u64::from(BPF_F_RECOMPUTE_CSUM);
    frame.store(frame.l3, &F::plain(ends, length), recompute)?;
    frame.store(frame.l3 + plain, &[kind, fold(sum), 0, 0], recompute)?;
    // Once more, for the verifier: it would go through this loop for each end of the other one.
    // SAFETY: a reference.
    let quoted = unsafe { ptr::from_ref(&scratch.quoted).read_volatile() };
    for (word, offset) in scratch.quote.iter().zip((0..QUOTED_BYTES).step_by(4)) {
        if offset >= quoted {
            break;
        }
        frame.store(frame.l3 + plain + 8 + offset, word, recompute)?;
    }
    Ok(())
}

/// Makes the packet `length` bytes long, of which only the link header is what it was. Its checksum is
/// no longer left to a device, which would write it into the midst of what stands there now.
///
/// For that the front of the packet has to go, beyond the header of the checksum at `l4`
/// (`skb_postpull_rcsum`, include/linux/skbuff.h).
#[inline(always)]
fn make_anew<L: Link>(frame: &Frame<L>, l4: u32, length: u32) -> Result<(), OutOfBounds> {
    let front = l4 + 4;
    // SAFETY: both helpers take the context itself.
    let result = unsafe {
        let result = bpf_skb_change_tail(frame.ctx.as_ptr().cast(), length + front, 0);
        if result == 0 {
            let shrink = -front.cast_signed();
            bpf_skb_adjust_room(frame.ctx.as_ptr().cast(), shrink, BPF_ADJ_ROOM_MAC, 0)
        } else {
            result
        }
    };
    if result == 0 { Ok(()) } else { Err(OutOfBounds) }
}
