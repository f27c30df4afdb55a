//! Program `from_pod`: a packet that a pod sends to a VIP goes to a backend.

use core::hint::cold_path;

use aya_ebpf::programs::TcContext;
use mcs_common::{
    Counter, FlowFlags, FrontendKey, VipMode,
    select::{Lookup, Tables as _, lookup_port},
};

use super::{
    answer::Answer,
    flows::{self, ClientFlow},
    fragments,
    frame::{Frame, IPV4, IPV6, LinkLayer},
    header::{FragmentPosition, IpHeader, protocol},
    icmp,
    ip::{IpVersion, Ipv4, Ipv6},
    plain,
    refuse::refuse,
    rewrite::rewrite,
    transport,
    verdict::{NEXT, drop_counted, drop_or_pass},
};
use crate::{
    counters::count,
    features,
    maps::{ConfigMaps, Memory},
    per_cpu::Scratch,
};

/// Decides about a packet that a pod sends.
#[inline(always)]
pub(crate) fn from_pod<L: LinkLayer>(ctx: TcContext) -> i32 {
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => decide::<Ipv4, L>(&frame),
        IPV6 => decide::<Ipv6, L>(&frame),
        _ => NEXT,
    }
}

#[inline(always)]
fn decide<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    if !plain::concerns_flows::<F, L>(frame) {
        return NEXT;
    }
    if let Some(verdict) = plain::from_pod::<F, L>(frame) {
        return verdict;
    }
    cold_path();
    check_destination::<F, L>(frame)
}

#[inline(always)]
fn check_destination<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    let mode = |destination| {
        ConfigMaps.vip(&destination).or_else(|| plain::opens::<F, L>(frame).then_some(DIRECT))
    };
    match F::destination(frame).ok().and_then(mode) {
        Some(mode) => to_vip::<F, L>(frame, mode),
        None => NEXT,
    }
}

/// [`Scratch::mode`] of a SYN to an address that is no VIP. It is none of [`VipMode`], so the packet passes if
/// [`find`] does not refuse it.
const DIRECT: u32 = u32::MAX;

#[inline(always)]
fn to_vip<F: IpVersion, L: LinkLayer>(frame: &Frame<L>, mode: u32) -> i32 {
    // SAFETY: nothing before this uses the memory.
    let mut memory = unsafe { Memory::begin() };
    let Some(scratch) = memory.scratch() else {
        return drop_counted(Counter::PacketDroppedFailed);
    };
    scratch.mode = mode;
    let Ok(header) = F::parse(frame, frame.l3, false, &mut scratch.tuple) else {
        return drop_or_pass(mode, Counter::PacketDroppedMalformed);
    };
    let (header, l3) = header.reload(frame.l3, &mut scratch.header);
    let frame = &frame.at(l3);
    if header.fragment == FragmentPosition::Later {
        return match fragments::follow::<F, L>(frame, &header, scratch) {
            Some(Ok(verdict)) => {
                count_translated(scratch.fragment.flags);
                verdict
            }
            Some(Err(_)) => drop_counted(Counter::PacketDroppedFailed),
            None => drop_or_pass(mode, Counter::PacketDroppedFragment),
        };
    }
    if header.protocol == F::ICMP {
        return icmp::to_vip::<F, L>(frame, &header, scratch, mode);
    }
    let mut flags = 0;
    let answer = match header.protocol {
        protocol::TCP | protocol::UDP => {
            let Ok(read) = transport::read(frame, &header, &mut scratch.tuple) else {
                return drop_or_pass(mode, Counter::PacketDroppedMalformed);
            };
            flags = read;
            resolve_and_tell(&mut memory, flags)
        }
        protocol::SCTP if !VipMode::passes(mode) => Counter::PacketRefusedSctp as u32,
        _ => return drop_or_pass(mode, Counter::PacketDroppedProtocol),
    };
    let Some(scratch) = memory.scratch() else {
        return drop_counted(Counter::PacketDroppedFailed);
    };
    match Answer::try_from(answer) {
        Ok(Answer::Pass) => {
            fragments::forget::<F>(&header, scratch);
            NEXT
        }
        Ok(_) => translate::<F, L>(frame, &header, scratch),
        Err(reason) => {
            features::undeliverable(scratch, reason);
            refuse::<F, L>(frame, &header, scratch, flags, reason)
        }
    }
}

/// Finds the flow of the packet in the scratch memory, or begins one and tells so. Returns what [`resolve`] does, but never
/// `Begun`.
#[inline(always)]
fn resolve_and_tell(_lent: &mut Memory, flags: u32) -> u32 {
    let answer = resolve(flags);
    if answer == Answer::Begun as u32 { begun() } else { answer }
}

/// Finds the flow of the packet in the scratch memory, or begins one, and stores it in
/// `Scratch::flow`. Returns an [`Answer`] other than `Again`, or the [`Counter`] of the refusal.
///
/// This is a global function because the verifier checks those once, and not once for each path that
/// leads here. Before Linux 6.3 it compares every scalar of two states in a program with functions,
/// so the loop over attempts must not be part of the caller's paths.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn resolve(flags: u32) -> u32 {
    let mut answer = find(flags);
    for attempt in 0..flows::ATTEMPTS {
        if answer != Answer::Again as u32 {
            return answer;
        }
        answer = begin(attempt, flags);
    }
    if answer == Answer::Again as u32 { Counter::PacketRefusedCollision as u32 } else { answer }
}

/// Stores the packet's flow in `Scratch::flow`, or else its frontend in `Scratch::frontend`. Returns an [`Answer`], or the
/// [`Counter`] of the refusal.
///
/// It is a global function for the reason given at [`resolve`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find(flags: u32) -> u32 {
    // SAFETY: `resolve_and_tell` has it lent.
    let mut memory = unsafe { Memory::lent() };
    let Some(scratch) = memory.scratch() else { return Counter::PacketDroppedFailed as u32 };
    Answer::to_scalar(find_in(scratch, flags))
}

/// What [`find`] does.
#[inline(always)]
fn find_in(scratch: &mut Scratch, flags: u32) -> Result<Answer, Counter> {
    if scratch.mode == DIRECT {
        return if flows::is_taken(scratch) {
            Err(Counter::PacketRefusedCollision)
        } else {
            Ok(Answer::Pass)
        };
    }
    match flows::find_for_client(scratch, flags) {
        ClientFlow::Found => return Ok(Answer::Found),
        ClientFlow::Unknown
            if scratch.mode == VipMode::SERVED && flows::is_foreign(scratch, flags) =>
        {
            flows::pass(scratch, flags);
            features::untranslated(scratch, Counter::PacketPassed as u32);
            return Ok(Answer::Found);
        }
        ClientFlow::Unknown | ClientFlow::Ended => {}
    }
    if scratch.mode != VipMode::SERVED {
        return if VipMode::passes(scratch.mode) {
            Ok(Answer::Pass)
        } else {
            Err(Counter::PacketRefusedGone)
        };
    }
    let Scratch { tuple, .. } = scratch;
    let key = FrontendKey::new(tuple.dst, tuple.dst_port, tuple.protocol);
    match lookup_port(&ConfigMaps, &key) {
        Lookup::Found(frontend) => {
            scratch.frontend = frontend;
            Ok(Answer::Again)
        }
        Lookup::Inconsistent => Err(Counter::PacketRefusedInconsistent),
        Lookup::Miss | Lookup::Gone | Lookup::UnknownPort => Err(Counter::PacketRefusedUnknownPort),
    }
}

/// Tries to begin a flow to `Scratch::frontend`. Returns an [`Answer`], or the [`Counter`] of the refusal.
///
/// It is a global function for the reason given at [`resolve`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin(attempt: u32, flags: u32) -> u32 {
    // SAFETY: `resolve_and_tell` has it lent.
    let mut memory = unsafe { Memory::lent() };
    let Some(scratch) = memory.scratch() else { return Counter::PacketDroppedFailed as u32 };
    Answer::to_scalar(flows::begin(scratch, attempt, flags))
}

/// Counts and tells that the flow in the scratch memory has begun. Returns [`Answer::Found`], or the [`Counter`] of a refusal.
///
/// This is a global function because `begin` has no stack left: Linux 5.10 adds up the frames of all functions on the way there.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begun() -> u32 {
    // SAFETY: `resolve_and_tell` has it lent.
    let mut memory = unsafe { Memory::lent() };
    let Some(scratch) = memory.scratch() else { return Counter::PacketDroppedFailed as u32 };
    features::began(scratch);
    Answer::Found as u32
}

/// Counts a packet of a flow. A hairpin's replies are sent by a pod too, so the flow's flags decide.
#[inline(always)]
fn count_translated(flags: u32) {
    let reply = flags & FlowFlags::REPLY != 0;
    let translated = if reply { Counter::PacketReversed } else { Counter::PacketTranslated };
    count(if flags & FlowFlags::PASSED != 0 { Counter::PacketPassed } else { translated });
}

#[inline(always)]
fn translate<F: IpVersion, L: LinkLayer>(
    frame: &Frame<L>,
    header: &IpHeader,
    scratch: &mut Scratch,
) -> i32 {
    fragments::remember::<F>(header, scratch);
    let flow = &scratch.flow;
    let passes = flow.flags & FlowFlags::PASSED != 0;
    if !passes && rewrite::<F, L>(frame, header, &scratch.tuple, &flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count_translated(flow.flags);
    if passes {
        frame.mark_passed();
    }
    if flow.flags & FlowFlags::HAIRPIN == 0 {
        return NEXT;
    }
    frame.send_back().unwrap_or_else(|_| drop_counted(Counter::PacketDroppedFailed))
}
