//! A packet that comes from a pod: to a backend, if it is to a VIP.

use mcs_common::{
    Counter, Flow, FlowFlags, FrontendKey,
    select::{Lookup, Tables as _, lookup_port},
};

use super::{
    NEXT, drop_counted, flows, fragments,
    frame::{Frame, Link},
    icmp,
    ip::{Header, Ip, Piece, protocol},
    refuse::refuse,
    rewrite::rewrite,
    transport::{self, Segment},
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
    let Ok(header) = F::parse(frame, frame.l3, false) else {
        return drop_counted(Counter::PacketDroppedMalformed);
    };
    if header.piece == Piece::Later {
        return match fragments::follow::<F, L>(frame, &header) {
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
        protocol::SCTP => return refuse::<F, L>(frame, &header, 0, Counter::PacketRefusedSctp),
        other if other == F::ICMP => return icmp::to_vip::<F, L>(frame, &header),
        _ => return drop_counted(Counter::PacketDroppedProtocol),
    }
    let Ok(segment) = transport::read(frame, &header) else {
        return drop_counted(Counter::PacketDroppedMalformed);
    };
    let flow = match flow(&segment) {
        Ok(flow) => flow,
        Err(Counter::PacketDroppedFailed) => return drop_counted(Counter::PacketDroppedFailed),
        Err(reason) => return refuse::<F, L>(frame, &header, segment.flags, reason),
    };
    translate::<F, L>(frame, &header, &segment, &flow)
}

/// The flow that the packet belongs to, or a new one.
#[inline(always)]
fn flow(segment: &Segment) -> Result<Flow, Counter> {
    let tuple = &segment.tuple;
    if let Some(entry) = flows::find(tuple) {
        let flow = flows::read(entry);
        if flows::goes_on(&flow, segment.flags) {
            flows::touch(tuple, entry, &flow, segment.flags);
            return Ok(flow);
        }
        flows::forget(tuple, &flow);
    }
    let key = FrontendKey::new(tuple.dst, tuple.dst_port, tuple.protocol);
    match lookup_port(&ConfigMaps, &key) {
        Lookup::Found(frontend) => flows::begin(tuple, &frontend, segment.flags),
        Lookup::Inconsistent => Err(Counter::PacketRefusedInconsistent),
        Lookup::Miss | Lookup::UnknownPort => Err(Counter::PacketRefusedUnknownPort),
    }
}

#[inline(always)]
fn translate<F: Ip, L: Link>(
    frame: &Frame<L>,
    header: &Header,
    segment: &Segment,
    flow: &Flow,
) -> i32 {
    fragments::remember(header, flow);
    if rewrite::<F, L>(frame, header, &segment.tuple, &flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(if flow.is_reply() { Counter::PacketReversed } else { Counter::PacketTranslated });
    if flow.flags & FlowFlags::HAIRPIN == 0 {
        return NEXT;
    }
    frame.send_back().unwrap_or_else(|_| drop_counted(Counter::PacketDroppedFailed))
}
