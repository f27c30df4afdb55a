//! ICMP: errors about translated packets, and echo requests to a VIP.

use mcs_common::Counter;

use super::{
    NEXT, drop_counted,
    frame::{Frame, Link},
    ip::{Header, Ip},
    scratch::Scratch,
};

/// The verdict on ICMP that a pod sends to a VIP.
#[inline(always)]
pub(crate) fn to_vip<F: Ip, L: Link>(
    _frame: &Frame<L>,
    _header: &Header,
    _scratch: &mut Scratch,
) -> i32 {
    drop_counted(Counter::PacketDroppedIcmp)
}

/// The verdict on ICMP that goes to a pod.
#[inline(always)]
pub(crate) fn to_pod<F: Ip, L: Link>(
    _frame: &Frame<L>,
    _header: &Header,
    _scratch: &mut Scratch,
) -> i32 {
    NEXT
}
