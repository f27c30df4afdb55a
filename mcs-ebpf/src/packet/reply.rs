//! A packet that goes to a pod: from the VIP, if it answers for one.

use mcs_common::Counter;

use super::{
    NEXT, drop_counted, flows, fragments,
    frame::{Frame, Link},
    icmp,
    ip::{Ip, Piece, protocol},
    rewrite::rewrite,
    scratch::scratch,
    transport,
};
use crate::counters::count;

/// The verdict on a packet that goes to a pod. What is not understood is not ours.
#[inline(always)]
pub(crate) fn reply<F: Ip, L: Link>(frame: &Frame<L>) -> i32 {
    let Some(scratch) = scratch() else { return NEXT };
    let Ok(header) = F::parse(frame, frame.l3, false, &mut scratch.tuple) else { return NEXT };
    if header.piece == Piece::Later {
        return match fragments::follow::<F, L>(frame, &header, scratch) {
            None => NEXT,
            Some(Ok(verdict)) => {
                count(Counter::PacketReversed);
                verdict
            }
            Some(Err(_)) => drop_counted(Counter::PacketDroppedFailed),
        };
    }
    if header.protocol == F::ICMP {
        return icmp::to_pod::<F, L>(frame, &header, scratch);
    }
    if header.protocol != protocol::TCP && header.protocol != protocol::UDP {
        return NEXT;
    }
    let Ok(flags) = transport::read(frame, &header, &mut scratch.tuple) else { return NEXT };
    let Some(entry) = flows::find_for_pod(scratch, flags) else {
        fragments::forget::<F>(&header, scratch);
        return NEXT;
    };
    flows::touch(scratch, entry, flags);
    fragments::remember::<F>(&header, scratch);
    if rewrite::<F, L>(frame, &header, &scratch.tuple, &scratch.flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(Counter::PacketReversed);
    NEXT
}
