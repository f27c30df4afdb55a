//! Counts what the programs do, in the per-CPU map `counters`.

use mcs_common::Counter;

use crate::maps::COUNTERS;

/// Adds one on this CPU.
///
/// An atomic addition would cost each packet more. On a preemptible kernel a program that
/// interrupts another one here may therefore lose the other's count.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    count_at(counter as u32);
}

/// Adds one to the counter with this index.
#[inline(always)]
pub(crate) fn count_at(index: u32) {
    if let Some(value) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: the pointer is to this CPU's value of the map.
        unsafe { value.write_volatile(value.read_volatile() + 1) };
    }
}
