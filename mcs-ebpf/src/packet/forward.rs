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
    if header.piece == Piece::Later {
        return match fragments::follow::<F, L>(frame, &header, scratch) {
            Some(Ok(verdict)) => {
                count(Counter::PacketTranslated);
                verdict
            }
            Some(Err(_)) => drop_counted(Counter::PacketDroppedFailed),
            None => drop_counted(Counter::PacketDroppedFragment),
        };
    }
    match header.protocol {
        protocol::TCP | protocol::UDP => {}
        protocol::SCTP => {
            return refuse::<F, L>(frame, &header, 0, Counter::PacketRefusedSctp as u32);
        }
        other if other == F::ICMP => return icmp::to_vip::<F, L>(frame, &header, scratch),
        _ => return drop_counted(Counter::PacketDroppedProtocol),
    }
    let Ok(flags) = transport::read(frame, &header, &mut scratch.tuple) else {
        return drop_counted(Counter::PacketDroppedMalformed);
    };
    let reason = find_or_begin(flags);
    if reason == FOUND {
        return translate::<F, L>(frame, &header);
    }
    refuse::<F, L>(frame, &header, flags, reason)
}

/// What [`find_or_begin`] returns for a flow.
const FOUND: u32 = u32::MAX;

/// Puts the flow that the packet in the scratch memory belongs to, or a new one, there. Returns
/// [`FOUND`], or the [`Counter`] of what keeps it from being made.
///
/// A global function: the verifier looks at it once, and not anew for each path that leads here.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_or_begin(flags: u32) -> u32 {
    let Some(scratch) = scratch() else { return Counter::PacketDroppedFailed as u32 };
    match flow(scratch, flags) {
        Ok(()) => FOUND,
        Err(reason) => reason as u32,
    }
}

#[inline(always)]
fn flow(scratch: &mut Scratch, flags: u32) -> Result<(), Counter> {
    if let Some(entry) = flows::find(&scratch.tuple) {
        entry.read(&mut scratch.flow);
        if flows::goes_on(scratch, flags) {
            flows::touch(scratch, entry, flags);
            return Ok(());
        }
        flows::forget(scratch);
    }
    let Scratch { tuple, .. } = scratch;
    let key = FrontendKey::new(tuple.dst, tuple.dst_port, tuple.protocol);
    match lookup_port(&ConfigMaps, &key) {
        Lookup::Found(frontend) => flows::begin(scratch, &frontend, flags),
        Lookup::Inconsistent => Err(Counter::PacketRefusedInconsistent),
        Lookup::Miss | Lookup::UnknownPort => Err(Counter::PacketRefusedUnknownPort),
    }
}

#[inline(always)]
fn translate<F: Ip, L: Link>(frame: &Frame<L>, header: &Header) -> i32 {
    let Some(scratch) = scratch() else { return drop_counted(Counter::PacketDroppedFailed) };
    fragments::remember::<F>(header, scratch);
    let flow = &scratch.flow;
    if rewrite::<F, L>(frame, header, &scratch.tuple, &flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(if flow.is_reply() { Counter::PacketReversed } else { Counter::PacketTranslated });
    if flow.flags & FlowFlags::HAIRPIN == 0 {
        return NEXT;
    }
    frame.send_back().unwrap_or_else(|_| drop_counted(Counter::PacketDroppedFailed))
}
