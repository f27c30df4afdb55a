use mcs_common::Counter;

use crate::maps::COUNTERS;

/// Counts one, on this CPU. On a preemptible kernel a program that interrupts another one here may
/// lose that one's count; the target has no atomic addition in this toolchain.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    count_at(counter as u32);
}

/// Counts one for the counter of this index.
#[inline(always)]
pub(crate) fn count_at(index: u32) {
    if let Some(value) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: the pointer is to this CPU's value of the map.
        unsafe { value.write_volatile(value.read_volatile() + 1) };
    }
}
