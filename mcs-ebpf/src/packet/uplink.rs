//! Program `uplink`: no packet to a VIP of ours leaves the node.

use core::hint::cold_path;

use aya_ebpf::programs::TcContext;
use mcs_common::{Counter, VipMode, select::Tables as _};

use super::{
    frame::{Frame, IPV4, IPV6, LinkLayer},
    header::{FragmentPosition, protocol},
    ip::{IpVersion, Ipv4, Ipv6},
    plain,
    refuse::refuse_leaving,
    transport,
    verdict::{NEXT, drop_counted},
};
use crate::maps::{ConfigMaps, begin_scratch};

/// Decides about a packet that leaves the node.
#[inline(always)]
pub(crate) fn uplink<L: LinkLayer>(ctx: TcContext) -> i32 {
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => check_destination::<Ipv4, L>(&frame),
        IPV6 => check_destination::<Ipv6, L>(&frame),
        _ => NEXT,
    }
}

/// Drops a packet to a VIP: no hook has translated it, and no router outside knows the address.
///
/// A packet to a VIP that was handed back passes: a dataplane outside of this node may serve the address.
#[inline(always)]
fn check_destination<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    if !plain::may_go_to_vip::<F, L>(frame) {
        return NEXT;
    }
    cold_path();
    let Ok(destination) = F::destination(frame) else { return NEXT };
    match ConfigMaps.vip(&destination) {
        Some(VipMode::SERVED) => drop_counted(Counter::LeakPrevented),
        Some(VipMode::GONE) => refuse_gone::<F, L>(frame),
        _ => NEXT,
    }
}

/// Refuses a packet to the VIP of a deleted import. A packet that cannot be answered is dropped.
#[inline(always)]
fn refuse_gone<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    let Some(scratch) = begin_scratch() else { return drop_counted(Counter::LeakPrevented) };
    let Ok(header) = F::parse(frame, frame.l3, false, &mut scratch.tuple) else {
        return drop_counted(Counter::LeakPrevented);
    };
    let (header, l3) = header.reload(frame.l3, &mut scratch.header);
    let frame = &frame.at(l3);
    if header.fragment == FragmentPosition::Later {
        return drop_counted(Counter::LeakPrevented);
    }
    let flags = match header.protocol {
        protocol::TCP | protocol::UDP => {
            let Ok(flags) = transport::read(frame, &header, &mut scratch.tuple) else {
                return drop_counted(Counter::LeakPrevented);
            };
            flags
        }
        protocol::SCTP => 0,
        _ => return drop_counted(Counter::LeakPrevented),
    };
    refuse_leaving::<F, L>(frame, &header, flags, Counter::PacketRefusedGone as u32)
}
