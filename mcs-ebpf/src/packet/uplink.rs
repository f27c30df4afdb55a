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
use crate::maps::{ConfigMaps, Memory};

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
/// A packet to a VIP that was handed back passes: a dataplane outside of this node may serve the address. A packet that
/// `from_pod` has passed belongs to a connection that nobody on this node serves, such as one of a machine that has
/// moved here. It is answered, so that its sender need not wait. Others are dropped alone: while the programs
/// of a pod are repaired, they may belong to a live flow.
#[inline(always)]
fn check_destination<F: IpVersion, L: LinkLayer>(frame: &Frame<L>) -> i32 {
    if !plain::may_go_to_vip::<F, L>(frame) {
        return NEXT;
    }
    cold_path();
    let Ok(destination) = F::destination(frame) else { return NEXT };
    let reason = match ConfigMaps.vip(&destination) {
        Some(VipMode::SERVED) if frame.is_passed() => Counter::LeakPrevented,
        Some(VipMode::SERVED) => return drop_counted(Counter::LeakPrevented),
        Some(VipMode::GONE) => Counter::PacketRefusedGone,
        _ => return NEXT,
    };
    refuse::<F, L>(frame, reason)
}

/// Refuses a packet to a VIP. A packet that cannot be answered is dropped.
#[inline(always)]
fn refuse<F: IpVersion, L: LinkLayer>(frame: &Frame<L>, reason: Counter) -> i32 {
    // SAFETY: nothing before this uses the memory.
    let mut memory = unsafe { Memory::begin() };
    let Some(scratch) = memory.scratch() else { return drop_counted(Counter::LeakPrevented) };
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
    refuse_leaving::<F, L>(frame, &header, scratch, flags, reason as u32)
}
