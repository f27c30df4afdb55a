//! The system's allocator, and what this thread has asked of it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

/// What a thread has asked of the allocator.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    /// How often it wanted memory.
    pub(crate) count: u64,
    /// Bytes that these calls were about.
    pub(crate) bytes: u64,
    /// Bytes that the thread holds now.
    held: u64,
    /// The most that it had at a time since [`begin_peak`].
    pub(crate) peak: u64,
}

thread_local! {
    static CALLS: Cell<Calls> = const { Cell::new(Calls { count: 0, bytes: 0, held: 0, peak: 0 }) };
}

/// What this thread has asked for so far.
pub(crate) fn calls() -> Calls {
    CALLS.get()
}

/// The peak of this thread is what it has now. Returns how much that is.
pub(crate) fn begin_peak() -> u64 {
    let calls = CALLS.get();
    CALLS.set(Calls { peak: calls.held, ..calls });
    calls.held
}

/// A thread that ends has no cell any more.
fn note(change: impl FnOnce(Calls) -> Calls) {
    let _ = CALLS.try_with(|calls| calls.set(change(calls.get())));
}

/// `size` bytes take the place of `former` ones.
fn note_wanted(size: usize, former: usize) {
    note(|Calls { count, bytes, held, peak }| {
        let held = (held + size as u64).saturating_sub(former as u64);
        Calls { count: count + 1, bytes: bytes + size as u64, held, peak: peak.max(held) }
    });
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_wanted(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_wanted(size, layout.size());
        // SAFETY: the caller's promise, of what came from there.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        note(|calls| Calls { held: calls.held.saturating_sub(layout.size() as u64), ..calls });
        // SAFETY: the caller's promise, of what came from there.
        unsafe { System.dealloc(place, layout) }
    }
}
