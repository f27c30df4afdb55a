use mcs_common::Counter;

use crate::maps::COUNTERS;

/// Counts one, on this CPU. On a preemptible kernel a program that interrupts another one here may
/// lose that one's count; the target has no atomic addition in this toolchain.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the pointer is to this CPU's value of the map.
        unsafe { value.write_volatile(value.read_volatile() + 1) };
    }
}
