//! Memory for what does not fit the 512 bytes of stack.

use mcs_common::{Flow, Fragment, FragmentKey, Tuple, select::FrontendMatch};

use super::refuse::QUOTED_WORDS;
use crate::maps::SCRATCH;

/// What one run of a program works on. Programs of the packet path run with bottom halves off, so
/// that none interrupts another on its CPU.
#[repr(C)]
pub(crate) struct Scratch {
    /// The packet as it came.
    pub(crate) tuple: Tuple,
    /// The packet inside an ICMP error.
    pub(super) inner: Tuple,
    /// What is done with it, once found or made.
    pub(crate) flow: Flow,
    /// Whose flow it is, while it is made.
    pub(super) frontend: FrontendMatch,
    /// Key of the flow's entry for packets the other way.
    pub(super) other_key: Tuple,
    /// That entry.
    pub(super) other: Flow,
    /// A tuple that one of the others is compared with, or becomes.
    pub(super) spare: Tuple,
    pub(super) fragment_key: FragmentKey,
    pub(super) fragment: Fragment,
    /// What [`Header::anew`](super::ip::Header::anew) goes by.
    pub(super) header: [u32; 6],
    /// What an ICMP error quotes.
    pub(super) quote: [u32; QUOTED_WORDS],
    /// Bytes of it.
    pub(super) quoted: u32,
}

/// This CPU's.
#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a mut Scratch> {
    // SAFETY: the pointer is to this CPU's value of the map, which no other run uses meanwhile, and
    // any bytes are a `Scratch`.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
}
