//! Program `to_pod`: a reply of a backend to a pod gets the VIP as its source.

use core::hint::cold_path;

use aya_ebpf::programs::TcContext;
use mcs_common::{Counter, FlowFlags, Seen};

use super::{
    flows, fragments,
    frame::{Frame, IPV4, IPV6, LinkLayer},
    header::{FragmentPosition, protocol},
    icmp,
    ip::{IpVersion, Ipv4, Ipv6},
    plain,
    rewrite::rewrite,
    transport,
    verdict::{NEXT, drop_counted},
};
use crate::{counters::count, maps::Memory};

/// Decides about a packet that a pod receives.
#[inline(always)]
pub(crate) fn to_pod<L: LinkLayer>(ctx: TcContext) -> i32 {
    if !flows::may_exist() {
        return NEXT;
    }
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => decide::<Ipv4, L>(&frame),
        IPV6 => decide::<Ipv6, L>(&frame),
        _ => NEXT,
    }
}

#[inline(always)]
fn decide<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    if !plain::may_be_reply::<F, L>(frame) {
        return NEXT;
    }
    if let Some(verdict) = plain::to_pod::<F, L>(frame) {
        return verdict;
    }
    cold_path();
    untranslate::<F, L>(frame)
}

/// Translates a packet of a flow. A packet that does not parse belongs to no flow and passes.
#[inline(always)]
fn untranslate<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    // SAFETY: nothing before this uses the memory.
    let mut memory = unsafe { Memory::begin() };
    let Some(scratch) = memory.scratch() else { return NEXT };
    let Ok(header) = F::parse(frame, frame.l3, false, &mut scratch.tuple) else { return NEXT };
    let (header, l3) = header.reload(frame.l3, &mut scratch.header);
    let frame = &frame.at(l3);
    if header.fragment == FragmentPosition::Later {
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
    // The reset of a direct connect has the ends of the flow that the connect would have disturbed.
    if flags & Seen::RST != 0 && frame.is_answer() {
        return NEXT;
    }
    let Some(entry) = flows::find_for_pod(scratch, flags) else {
        fragments::forget::<F>(&header, scratch);
        return NEXT;
    };
    flows::touch(scratch, entry, flags);
    if scratch.flow.flags & FlowFlags::PASSED != 0 {
        fragments::forget::<F>(&header, scratch);
        return NEXT;
    }
    fragments::remember::<F>(&header, scratch);
    if rewrite::<F, L>(frame, &header, &scratch.tuple, &scratch.flow.to).is_err() {
        return drop_counted(Counter::PacketDroppedFailed);
    }
    count(Counter::PacketReversed);
    NEXT
}
