//! The allocator of the C library.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "mallopt and malloc_trim"))]

/// Keeps the C library from making a heap for each thread: nearly all is allocated and freed by one,
/// and what the others leave could not be put to use. For before there are threads.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back to the kernel what a large change has left unused in the heap: the C library keeps it
/// otherwise.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
