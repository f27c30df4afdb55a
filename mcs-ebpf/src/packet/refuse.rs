//! Answers a packet that has no backend with a TCP reset or an ICMP error, so that its sender fails
//! at once.

use core::{borrow::Borrow as _, ptr};

use aya_ebpf::{
    EbpfContext as _,
    bindings::{BPF_F_INGRESS, BPF_F_RECOMPUTE_CSUM, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers::{bpf_skb_adjust_room, bpf_skb_change_tail},
};
use mcs_common::{Counter, Seen, Tuple};

use super::{
    clock::now_ns,
    frame::{Frame, LinkLayer, NOT_REDIRECTED, OutOfBounds, bytes_of},
    header::{FragmentPosition, IpHeader, protocol},
    ip::{IpVersion, checksum_difference, fold},
    rewrite::{addresses, replace_l4},
    verdict::DROP,
};
use crate::{
    counters::{count, count_at},
    features,
    maps::REFUSALS,
    per_cpu::{QUOTED_WORDS, Scratch},
};

/// The price of one answer, in nanoseconds of credit. It allows each CPU 1,000 answers a second, as
/// many as the kernel's `icmp_msgs_per_sec`.
const COST_NS: u64 = 1_000_000;
/// The most credit that a CPU saves up: 100 answers.
const BURST_NS: u64 = 100 * COST_NS;

/// Answers a packet to a VIP that has no backend, or a direct SYN that a backend would take for one of a flow: TCP
/// with a reset, all else with ICMP port unreachable. `flags` are those of the TCP header, `reason` is a [`Counter`]. Returns the verdict.
#[inline(always)]
pub(crate) fn refuse<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
    flags: u32,
    reason: u32,
) -> i32 {
    answer_into::<F, L>(frame, header, scratch, flags, reason, 0)
}

/// Answers a packet that leaves the node as [`refuse`] does. The answer enters the node as if the device had
/// received it: connection tracking assigns it to the packet's connection, and reverses a masquerade.
#[inline(always)]
pub(crate) fn refuse_leaving<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
    flags: u32,
    reason: u32,
) -> i32 {
    answer_into::<F, L>(frame, header, scratch, flags, reason, BPF_F_INGRESS.into())
}

/// Answers a packet, by a redirect with these flags.
#[inline(always)]
fn answer_into<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
    flags: u32,
    reason: u32,
    redirect: u64,
) -> i32 {
    count_at(reason);
    features::untranslated(scratch, reason);
    let tcp = header.protocol == protocol::TCP;
    let silent = reason == Counter::PacketDroppedFailed as u32
        // A reset is never answered (RFC 9293, 3.10.7.1). A segment that the device is to split has
        // one header for all parts, and its sender repeats it as a single segment after a timeout.
        || (tcp && (flags & Seen::RST != 0 || frame.is_gso() || header.fragment != FragmentPosition::Unfragmented));
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
    if answer.is_ok() {
        frame.mark_answer();
        let verdict = frame.redirect_back(redirect);
        if verdict != NOT_REDIRECTED {
            return verdict;
        }
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

/// Turns a TCP segment into the reset that answers it, in place.
///
/// The checksum may be left to a device, which completes it at a fixed offset
/// (`CHECKSUM_PARTIAL`), so neither the length nor the offset may change.
#[inline(always)]
fn reset<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    tuple: &Tuple,
    flags: u32,
) -> Result<(), OutOfBounds> {
    const OFFSET: u32 = 0xf000_0000;
    const FLAGS: u32 = 16;

    let old: [u32; 3] = frame.load(header.l4 + 4)?;
    let [sequence, acknowledged, offset] = old;
    let offset = u32::from_be(offset) & OFFSET;
    // RFC 9293, 3.5.2: the reset takes the acknowledged sequence number, or else acknowledges all
    // data of the segment.
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
    // Swapped words add up to the same checksum.
    let ports: [u16; 2] = frame.load(header.l4)?;
    frame.store(header.l4, &[ports[1], ports[0]], 0)?;
    addresses::<F, L>(frame, frame.l3, 0, F::addresses(&tuple.reversed()).borrow())
}

/// How many bytes of the refused packet's payload an ICMP error quotes: the minimum of RFC 792, which
/// is enough to find the sender's socket.
const QUOTED: u32 = 8;
const QUOTED_BYTES: u32 = bytes_of::<[u32; QUOTED_WORDS]>();

/// Turns a packet into the ICMP port unreachable that answers it.
#[inline(always)]
fn unreachable<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
) -> Result<(), OutOfBounds> {
    let quoted = header.l4 - frame.l3 + QUOTED;
    // A VLAN tag inside the packet data would be overwritten.
    let tagged = frame.l3 != L::HEADER;
    if tagged || header.end - header.l4 < QUOTED || quoted > QUOTED_BYTES {
        return Err(OutOfBounds);
    }
    // LLVM must not know that `quoted` fits: it would drop the loops' own bound, and the verifiers
    // of older kernels lose track of the other one.
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

    let ip_header = bytes_of::<F::IcmpIpHeader>();
    resize(frame, header.l4, frame.l3 + ip_header + u32::from(length))?;
    let recompute = u64::from(BPF_F_RECOMPUTE_CSUM);
    frame.store(frame.l3, &F::icmp_ip_header(ends, length), recompute)?;
    frame.store(frame.l3 + ip_header, &[kind, fold(sum), 0, 0], recompute)?;
    // Read again for the verifier: else it checks this loop once for each end of the first one.
    // SAFETY: a reference.
    let quoted = unsafe { ptr::from_ref(&scratch.quoted).read_volatile() };
    for (word, offset) in scratch.quote.iter().zip((0..QUOTED_BYTES).step_by(4)) {
        if offset >= quoted {
            break;
        }
        frame.store(frame.l3 + ip_header + 8 + offset, word, recompute)?;
    }
    Ok(())
}

/// Makes the packet `length` bytes long and keeps only its link header. The device no longer
/// completes the checksum, which would overwrite the new data.
///
/// For that the front of the packet has to be removed, up to behind the start of the checksummed
/// header at `l4` (`skb_postpull_rcsum`, include/linux/skbuff.h).
#[inline(always)]
fn resize<L: LinkLayer>(frame: &Frame<L>, l4: u32, length: u32) -> Result<(), OutOfBounds> {
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
