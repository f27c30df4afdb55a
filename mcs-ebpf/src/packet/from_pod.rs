//! Program `from_pod`: a packet that a pod sends to a VIP goes to a backend.

use core::hint::cold_path;

use aya_ebpf::programs::TcContext;
use mcs_common::{
    Counter, FlowFlags, FrontendKey, VipMode,
    select::{Lookup, Tables as _, lookup_port},
};

use super::{
    flows::{self, Begun, ClientFlow},
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
    figures,
    maps::{ConfigMaps, begin_scratch, scratch},
    per_cpu::Scratch,
    trace,
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
    let Some(scratch) = begin_scratch() else { return drop_counted(Counter::PacketDroppedFailed) };
    scratch.mode = mode;
    // Read back, so that the verifier does not check all that follows once more for `DIRECT`: Linux 5.10 gives up after a
    // million instructions.
    // SAFETY: the pointer is to the field.
    let mode = unsafe { (&raw const scratch.mode).read_volatile() };
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
            match resolve(flags) {
                BEGUN => begun(),
                answer => answer,
            }
        }
        protocol::SCTP if !VipMode::passes(mode) => Counter::PacketRefusedSctp as u32,
        _ => return drop_or_pass(mode, Counter::PacketDroppedProtocol),
    };
    if answer == FOUND {
        translate::<F, L>(frame, &header)
    } else if answer == PASS {
        fragments::forget::<F>(&header, scratch);
        NEXT
    } else {
        figures::refused_packet(scratch, answer);
        refuse::<F, L>(frame, &header, flags, answer)
    }
}

/// Finds the flow of the packet in the scratch memory, or begins one, and stores it in
/// `Scratch::flow`. Returns [`FOUND`], [`BEGUN`], or the [`Counter`] of the failure.
///
/// This is a global function because the verifier checks those once, and not once for each path that
/// leads here. Before Linux 6.3 it compares every scalar of two states in a program with functions,
/// so the loop over attempts must not be part of the caller's paths.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn resolve(flags: u32) -> u32 {
    let mut answer = find(flags);
    for attempt in 0..flows::ATTEMPTS {
        if answer != AGAIN {
            return answer;
        }
        answer = begin(attempt, flags);
    }
    if answer == AGAIN { Counter::PacketRefusedCollision as u32 } else { answer }
}

/// The return value of [`find`] and [`begin`] when there was a flow.
const FOUND: u32 = u32::MAX;
/// Their return value when another attempt may begin a flow.
const AGAIN: u32 = u32::MAX - 1;
/// The return value of [`find`] when the packet passes unchanged.
const PASS: u32 = u32::MAX - 2;
/// The return value of [`begin`] when a flow has begun.
const BEGUN: u32 = u32::MAX - 3;

/// Stores the packet's flow in `Scratch::flow`, or else its frontend in `Scratch::frontend`. Returns
/// [`FOUND`], [`AGAIN`], or the [`Counter`] of the failure.
///
/// It is a global function for the reason given at [`resolve`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find(flags: u32) -> u32 {
    let Some(scratch) = scratch() else { return Counter::PacketDroppedFailed as u32 };
    if scratch.mode == DIRECT {
        return if flows::is_taken(scratch) {
            Counter::PacketRefusedCollision as u32
        } else {
            PASS
        };
    }
    match flows::find_for_client(scratch, flags) {
        ClientFlow::Found => return FOUND,
        ClientFlow::Unknown
            if scratch.mode == VipMode::SERVED && flows::is_foreign(scratch, flags) =>
        {
            flows::pass(scratch, flags);
            trace::packet(scratch, Counter::PacketPassed as u32);
            return FOUND;
        }
        ClientFlow::Unknown | ClientFlow::Ended => {}
    }
    if scratch.mode != VipMode::SERVED {
        return if VipMode::passes(scratch.mode) {
            PASS
        } else {
            Counter::PacketRefusedGone as u32
        };
    }
    let Scratch { tuple, .. } = scratch;
    let key = FrontendKey::new(tuple.dst, tuple.dst_port, tuple.protocol);
    match lookup_port(&ConfigMaps, &key) {
        Lookup::Found(frontend) => {
            scratch.frontend = frontend;
            AGAIN
        }
        Lookup::Inconsistent => Counter::PacketRefusedInconsistent as u32,
        Lookup::Miss | Lookup::Gone | Lookup::UnknownPort => {
            Counter::PacketRefusedUnknownPort as u32
        }
    }
}

/// Tries to begin a flow to `Scratch::frontend`. Returns what [`find`] returns, or [`BEGUN`].
///
/// It is a global function for the reason given at [`resolve`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin(attempt: u32, flags: u32) -> u32 {
    let Some(scratch) = scratch() else { return Counter::PacketDroppedFailed as u32 };
    match flows::begin(scratch, attempt, flags) {
        Ok(Begun::New) => BEGUN,
        Ok(Begun::Known) => FOUND,
        Ok(Begun::Taken) => AGAIN,
        Err(reason) => reason as u32,
    }
}

/// Counts and tells that the flow in the scratch memory has begun. Returns [`FOUND`].
///
/// It is a global function because `begin` has no stack left: Linux 5.10 adds up the frames of all functions on the way there.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begun() -> u32 {
    let Some(scratch) = scratch() else { return Counter::PacketDroppedFailed as u32 };
    figures::began(scratch);
    trace::flow(scratch);
    FOUND
}

/// Counts a packet of a flow. A hairpin's replies are sent by a pod too, so the flow's flags decide.
#[inline(always)]
fn count_translated(flags: u32) {
    let reply = flags & FlowFlags::REPLY != 0;
    let translated = if reply { Counter::PacketReversed } else { Counter::PacketTranslated };
    count(if flags & FlowFlags::PASSED != 0 { Counter::PacketPassed } else { translated });
}

#[inline(always)]
fn translate<F: IpVersion, L: LinkLayer>(frame: &Frame<L>, header: &IpHeader) -> i32 {
    let Some(scratch) = scratch() else { return drop_counted(Counter::PacketDroppedFailed) };
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
