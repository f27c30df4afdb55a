//! The packet path: what makes no socket on this kernel is translated packet by packet.
//!
//! tc shows a packet twice: as it comes from a pod ([`forward`]), and as it goes to one
//! ([`reply`]). Headers are read and written by the kernel's helpers alone: they see what is not
//! in the linear part, and they keep every kind of checksum right, finished or left to the device.

pub(crate) mod flows;
pub(crate) mod forward;
pub(crate) mod fragments;
pub(crate) mod frame;
pub(crate) mod guard;
pub(crate) mod icmp;
pub(crate) mod ip;
pub(crate) mod refuse;
pub(crate) mod reply;
pub(crate) mod rewrite;
pub(crate) mod scratch;
pub(crate) mod transport;

use aya_ebpf::programs::TcContext;
use mcs_common::Counter;

use self::{
    frame::{Frame, IPV4, IPV6, Link},
    ip::{V4, V6},
};
use crate::counters::count;

/// `TC_ACT_UNSPEC`, which is also `TCX_NEXT`: the next program or filter decides.
pub(crate) const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
const DROP: i32 = 2;

/// Drops the packet, counted.
#[inline(always)]
pub(crate) fn drop_counted(reason: Counter) -> i32 {
    count(reason);
    DROP
}

/// A packet that comes from a pod.
#[inline(always)]
pub(crate) fn from_pod<L: Link>(ctx: TcContext) -> i32 {
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => forward::forward::<V4, L>(&frame),
        IPV6 => forward::forward::<V6, L>(&frame),
        _ => NEXT,
    }
}

/// A packet that goes to a pod.
#[inline(always)]
pub(crate) fn to_pod<L: Link>(ctx: TcContext) -> i32 {
    if !flows::may_exist() {
        return NEXT;
    }
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => reply::reply::<V4, L>(&frame),
        IPV6 => reply::reply::<V6, L>(&frame),
        _ => NEXT,
    }
}

/// A packet that leaves the node.
#[inline(always)]
pub(crate) fn uplink<L: Link>(ctx: TcContext) -> i32 {
    let frame = Frame::<L>::new(ctx);
    match frame.ethertype {
        IPV4 => guard::guard::<V4, L>(&frame),
        IPV6 => guard::guard::<V6, L>(&frame),
        _ => NEXT,
    }
}
