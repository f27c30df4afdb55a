/// Gives back to the kernel what a large change has left unused in the heap: the C library keeps it
/// otherwise.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
