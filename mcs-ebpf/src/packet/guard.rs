//! No packet to a VIP leaves the node.

use mcs_common::{Counter, select::Tables as _};

use super::{
    NEXT, drop_counted,
    frame::{Frame, Link},
    ip::Ip,
};
use crate::maps::ConfigMaps;

/// Drops what is addressed to a VIP: nothing has translated it, and nobody out there could.
#[inline(always)]
pub(crate) fn guard<F: Ip, L: Link>(frame: &Frame<L>) -> i32 {
    match F::destination(frame) {
        Ok(destination) if ConfigMaps.is_vip(&destination) => drop_counted(Counter::LeakPrevented),
        _ => NEXT,
    }
}
