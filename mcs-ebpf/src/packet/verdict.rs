//! The return values of the tc programs (`include/uapi/linux/pkt_cls.h`).

use mcs_common::{Counter, VipMode};

use crate::counters::count;

/// `TC_ACT_UNSPEC`, which is also `TCX_NEXT`: the next program or filter decides.
pub(crate) const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
pub(crate) const DROP: i32 = 2;

/// Drops the packet and counts it under `reason`.
#[inline(always)]
pub(crate) fn drop_counted(reason: Counter) -> i32 {
    count(reason);
    DROP
}

/// Drops a packet to a VIP that belongs to no flow, or passes it if the VIP was handed back.
#[inline(always)]
pub(crate) fn drop_or_pass(mode: u32, reason: Counter) -> i32 {
    if VipMode::passes(mode) { NEXT } else { drop_counted(reason) }
}
