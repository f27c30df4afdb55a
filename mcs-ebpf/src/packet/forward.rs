//! A packet that comes from a pod: to a backend, if it is to a VIP.

use mcs_common::{
    Counter, FlowFlags, FrontendKey,
    select::{Lookup, Tables as _, lookup_port},
};

use super::{
    NEXT, drop_counted, flows, fragments,
    frame::{Frame, Link},
    icmp,
    ip::{Header, Ip, Piece, protocol},
    refuse::refuse,
    rewrite::rewrite,
    scratch::{Scratch, scratch},
    transport,
};
use crate::{counters::count, maps::ConfigMaps};

/// The verdict on a packet that comes from a pod.
#[inline(always)]
pub(crate) fn forward<F: Ip, L: Link>(frame: &Frame<L>) -> i32 {
    match F::destination(frame) {
        Ok(destination) if ConfigMaps.is_vip(&destination) => to_vip::<F, L>(frame),
        _ => NEXT,
    }
}

#[inline(always)]
fn to_vip<F: Ip, L: Link>(frame: &Frame<L>) -> i32 {
    let Some(scratch) = scratch() else { return drop_counted(Counter::PacketDroppedFailed) };
    let Ok(header) = F::parse(frame, frame.l3, false, &mut scratch.tuple) else {
        return drop_counted(Counter::PacketDroppedMalformed);
    };
    let (header, l3) = header.anew(frame.l3, &mut scratch.header);
    let frame = &frame.at(l3);
    if header.piece == Piece::Later {
        return match fragments::follow::<F, L>(frame, &header, scratch) {
            Some(Ok(verdict)) => {
                count_translated(scratch.fragment.flags);
                verdict
            }
            Some(Err(_)) => drop_counted(Counter::PacketDroppedFailed),
            None => drop_counted(Counter::PacketDroppedFragment),
        };
    }
    if header.protocol == F::ICMP {
        return icmp::to_vip::<F, L>(frame, &header, scratch);
    }
    let mut flags = 0;
    let answer = match header.protocol {
        protocol::TCP | protocol::UDP => {
            let Ok(read) = transport::read(frame, &header, &mut scratch.tuple) else {
                return drop_counted(Counter::PacketDroppedMalformed);
            };
            flags = read;
            resolve(flags)
        }
        protocol::SCTP => Counter::PacketRefusedSctp as u32,
        _ => return drop_counted(Counter::PacketDroppedProtocol),
    };
    if answer == FOUND {
        translate::<F, L>(frame, &header)
    } else {
        refuse::<F, L>(frame, &header, flags, answer)
    }
}

/// Puts the flow that the packet in the scratch memory belongs to, or a new one, there. Returns
/// [`FOUND`] or the [`Counter`] of what is wrong.
///
/// A global function: the verifier looks at it once, and not anew for each path that leads here.
/// Before Linux 6.3 it tells the states of a program with functions apart by every scalar in them, so
/// that the attempts must not lie among the caller's paths.
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

/// What [`find`] and [`begin`] return when there is a flow.
const FOUND: u32 = u32::MAX;
/// What they return when there is none yet.
const AGAIN: u32 = u32::MAX - 1;

/// Puts the flow that the packet in the scratch memory belongs to there, or else the frontend that
/// it is for. Returns [`FOUND`], [`AGAIN`], or the [`Counter`] of what is wrong.
/// A global function for the same reason.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find(flags: u32) -> u32 {
    let Some(scratch) = scratch() else { return Counter::PacketDroppedFailed as u32 };
    if flows::find_for_client(scratch, flags) {
        return FOUND;
    }
    let Scratch { tuple, .. } = scratch;
    let key = FrontendKey::new(tuple.dst, tuple.dst_port, tuple.protocol);
    match lookup_port(&ConfigMaps, &key) {
        Lookup::Found(frontend) => {
            scratch.frontend = frontend;
            AGAIN
        }
        Lookup::Inconsistent => Counter::PacketRefusedInconsistent as u32,
        Lookup::Miss | Lookup::UnknownPort => Counter::PacketRefusedUnknownPort as u32,
    }
}

/// Tries to begin a flow, as [`find`] left it in the scratch memory. Returns as [`find`] does; a
/// global function for the same reason.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin(attempt: u32, flags: u32) -> u32 {
    let Some(scratch) = scratch() else { return Counter::PacketDroppedFailed as u32 };
    match flows::begin(scratch, attempt, flags) {
        Ok(true) => FOUND,
        Ok(false) => AGAIN,
        Err(reason) => reason as u32,
    }
}

/// Counts by the flags of the flow: a pod's reply to itself comes from a pod, too.
#[inline(always)]
fn count_translated(flags: u32) {
    let reply = flags & FlowFlags::REPLY != 0;
    count(if reply { Counter::PacketReversed } else { Counter::PacketTranslated });
}

#[inline(always)]
fn translate<F: Ip, L: Link>(frame: &Frame<L>, header: &Header) -> i32 {
    let Some(scratch) = scratch() else { return drop_counted(Counter::PacketDroppedFailed) };
    fragments::remember::<F>(header, scratch);
    let flow = &scratch.flow;
    if rewrite::<F, L>(frame, header, &scratch.tuple, &flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count_translated(flow.flags);
    if flow.flags & FlowFlags::HAIRPIN == 0 {
        return NEXT;
    }
    frame.send_back().unwrap_or_else(|_| drop_counted(Counter::PacketDroppedFailed))
}
