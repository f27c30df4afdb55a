use mcs_common::Counter;

use crate::maps::COUNTERS;

/// Counts one, on this CPU.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the value is this CPU's own, and programs of these hooks do not preempt each
        // other on a CPU.
        unsafe { *value += 1 };
    }
}
