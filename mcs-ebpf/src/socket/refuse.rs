//! Refuses a connect or a datagram: its system call fails.

use aya_ebpf::{Global, helpers::bpf_set_retval};
use mcs_common::Counter;

use super::context::{HookFamily, SocketContext};
use crate::{counters::count, features};

/// The return value that fails the system call (kernel/bpf/verifier.c, `check_return_code`).
const REFUSE: i32 = 0;
const ECONNREFUSED: i32 = 111;

/// 1 if the kernel has `bpf_set_retval` for these hooks (5.18 and later). With 0 the verifier removes
/// the call as dead code, and a refused system call fails with EPERM.
#[unsafe(no_mangle)]
static HAVE_SET_RETVAL: Global<u8> = Global::new(0);

/// Counts a refusal and fails the system call, with ECONNREFUSED where the kernel allows an errno.
#[inline(always)]
pub(crate) fn refuse<F: HookFamily>(ctx: &SocketContext<F>, reason: Counter) -> i32 {
    count(reason);
    features::refused(ctx, reason);
    refuse_uncounted()
}

/// Fails the system call as [`refuse`] does, without counting.
#[inline(always)]
pub(crate) fn refuse_uncounted() -> i32 {
    if HAVE_SET_RETVAL.load() != 0 {
        // SAFETY: the helper takes no pointer.
        unsafe { bpf_set_retval(-ECONNREFUSED) };
    }
    REFUSE
}
