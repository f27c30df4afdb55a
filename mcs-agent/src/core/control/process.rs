//! This process: CPU time of a thread, and settings of glibc's allocator, which keep its resident memory small.
//! tests/results/README.md compares it with jemalloc and mimalloc.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "mallopt and malloc_trim"))]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this thread so far.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Keeps glibc from making a heap for each thread. The main thread allocates objects and the thread `engine` frees them, and
/// no thread can use the memory that others free in their heaps. Call it before threads start.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns free memory to the kernel after a large change: glibc keeps it otherwise.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
