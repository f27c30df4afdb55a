//! A packet that goes to a pod: from the VIP, if it answers for one.

use mcs_common::{Counter, FlowFlags};

use super::{
    NEXT, drop_counted, flows, fragments,
    frame::{Frame, Link},
    icmp,
    ip::{Ip, Piece, protocol},
    rewrite::rewrite,
    transport,
};
use crate::counters::count;

/// The verdict on a packet that goes to a pod. What is not understood is not ours.
#[inline(always)]
pub(crate) fn reply<F: Ip, L: Link>(frame: &Frame<L>) -> i32 {
    let Ok(header) = F::parse(frame, frame.l3, false) else { return NEXT };
    if header.piece == Piece::Later {
        return match fragments::follow::<F, L>(frame, &header) {
            None => NEXT,
            Some(Ok(verdict)) => {
                count(Counter::PacketReversed);
                verdict
            }
            Some(Err(_)) => drop_counted(Counter::PacketDroppedFailed),
        };
    }
    if header.protocol == F::ICMP {
        return icmp::to_pod::<F, L>(frame, &header);
    }
    if header.protocol != protocol::TCP && header.protocol != protocol::UDP {
        return NEXT;
    }
    let Ok(segment) = transport::read(frame, &header) else { return NEXT };
    let Some(entry) = flows::find(&segment.tuple) else { return NEXT };
    let flow = flows::read(entry);
    // A pod's reply to itself was translated when it came from the pod.
    if !flow.is_reply() || flow.flags & FlowFlags::HAIRPIN != 0 {
        return NEXT;
    }
    flows::touch(&segment.tuple, entry, &flow, segment.flags);
    fragments::remember(&header, &flow);
    if rewrite::<F, L>(frame, &header, &segment.tuple, &flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(Counter::PacketReversed);
    NEXT
}
