//! The clocks of the programs.

use aya_ebpf::{
    Global,
    helpers::{bpf_ktime_get_coarse_ns, bpf_ktime_get_ns},
};

/// 1 if the kernel has `bpf_ktime_get_coarse_ns` (5.11 and later). With 0 the verifier removes the call as dead code.
#[unsafe(no_mangle)]
static HAVE_COARSE_CLOCK: Global<u8> = Global::new(0);

/// Nanoseconds of `CLOCK_MONOTONIC` at the latest tick: every packet of a flow asks for it, and this takes a fraction of
/// the time of [`now_ns`]. Kernels without it read the clock.
#[inline(always)]
pub(crate) fn tick_ns() -> u64 {
    if HAVE_COARSE_CLOCK.load() == 0 {
        return now_ns();
    }
    // SAFETY: the helper takes no argument.
    unsafe { bpf_ktime_get_coarse_ns() }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_ktime_get_ns() }
}
