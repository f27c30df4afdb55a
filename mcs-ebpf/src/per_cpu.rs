//! The values of `scratch`, `task_scratch` and `refusals`, which only these programs read.

use mcs_common::{Flow, Fragment, FragmentKey, Tuple, select::FrontendMatch};

/// The most 32-bit words of a refused packet that an ICMP error quotes, headers included.
pub(crate) const QUOTED_WORDS: usize = 24;

/// Working memory of one run of a packet program: the stack has 512 bytes, which is too little.
///
/// Programs of the packet path run with bottom halves off, so none interrupts another on its CPU. With `PREEMPT_RT` and
/// without `PREEMPT_RT_NEEDS_BH_LOCK` (kernel/softirq.c) none interrupts another in its task.
#[repr(C)]
pub(crate) struct Scratch {
    /// The packet as it arrived.
    pub(crate) tuple: Tuple,
    /// The mode of the packet's VIP, a value of `VipMode`; a direct SYN has another value.
    pub(crate) mode: u32,
    /// Zero.
    pub(crate) pad: u32,
    /// The packet that an ICMP error quotes.
    pub(crate) inner: Tuple,
    /// The flow that the packet belongs to: the entry for packets of this direction.
    pub(crate) flow: Flow,
    /// The frontend of a new flow.
    pub(crate) frontend: FrontendMatch,
    /// The key of the flow's entry for the opposite direction.
    pub(crate) opposite_key: Tuple,
    /// The flow's entry for the opposite direction.
    pub(crate) opposite: Flow,
    /// Room for one more tuple, valid within one function only.
    pub(crate) spare: Tuple,
    /// The key of the packet's datagram in `fragments`.
    pub(crate) fragment_key: FragmentKey,
    /// The entry under that key.
    pub(crate) fragment: Fragment,
    /// The memory that [`IpHeader::reload`](crate::packet::header::IpHeader::reload) goes through.
    pub(crate) header: [u32; 6],
    /// The start of a refused packet, for the ICMP error that quotes it.
    pub(crate) quote: [u32; QUOTED_WORDS],
    /// How many bytes of `quote` the error takes.
    pub(crate) quoted: u32,
}

/// Limits how many answers to refused packets this CPU sends: a token bucket.
#[repr(C)]
pub(crate) struct RefusalBudget {
    /// The credit in nanoseconds: time adds to it, and each answer takes a fixed price.
    pub(crate) credit_ns: u64,
    /// When the credit was last topped up, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) refilled_ns: u64,
}
