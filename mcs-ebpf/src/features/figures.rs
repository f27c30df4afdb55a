//! Counts connections and refusals by import and source cluster, in the per-CPU map `figures`.

use aya_ebpf::Global;
use mcs_common::{
    Address, FigureRow, Refusal,
    select::{Choice, FrontendMatch},
};

use crate::{
    maps::{BACKENDS, FIGURE_VIPS, FIGURES},
    per_cpu::Scratch,
};

/// 1 if imports are counted. With 0 the verifier removes the code.
#[unsafe(no_mangle)]
static COUNT_IMPORTS: Global<u8> = Global::new(0);

/// A new connection goes to a backend.
#[inline(always)]
pub(super) fn connected(frontend: &FrontendMatch, choice: &Choice) {
    if COUNT_IMPORTS.load() != 0 {
        add(frontend.state.row, choice.backend.column.into());
    }
}

/// The flow in the scratch memory has begun. The backend is looked up again, since `begin` in `from_pod` has no
/// stack left to remember its column.
#[inline(always)]
pub(super) fn began(scratch: &Scratch) {
    if COUNT_IMPORTS.load() != 0
        && let Some(backend) = BACKENDS.get_ptr(scratch.flow.chosen.id)
    {
        // SAFETY: the pointer is to a value of the array.
        let column = unsafe { (&raw const (*backend).column).read_volatile() };
        add(scratch.frontend.state.row, column.into());
    }
}

/// A socket is refused, which has found its frontend.
#[inline(always)]
pub(super) fn no_backend(frontend: &FrontendMatch) {
    if COUNT_IMPORTS.load() != 0 {
        add(frontend.state.row, Refusal::NoBackend.column());
    }
}

/// A socket is refused: the VIP has no such port.
#[inline(always)]
pub(super) fn unknown_port(vip: &Address) {
    if COUNT_IMPORTS.load() != 0 {
        add(row_of(vip), Refusal::UnknownPort.column());
    }
}

/// A packet is refused, with this counter.
#[inline(always)]
pub(super) fn undeliverable(scratch: &Scratch, counter: u32) {
    if COUNT_IMPORTS.load() != 0
        && let Some(reason) = Refusal::of_packet(counter)
    {
        add(row_of(&scratch.tuple.dst), reason.column());
    }
}

/// The row of a VIP's import.
#[inline(always)]
fn row_of(vip: &Address) -> u32 {
    // SAFETY: the pointer is to a value of the map. If the map reuses the element meanwhile, one refusal counts as that of
    // another import.
    FIGURE_VIPS.get_ptr(vip).map_or(0, |row| unsafe { row.read_volatile() })
}

/// Adds one on this CPU, as [`count`](crate::counters::count) does.
#[inline(always)]
fn add(row: u32, column: u32) {
    if let Some(row) = FIGURES.get_ptr_mut(row) {
        // SAFETY: the pointer is to this CPU's value of the map, which has so many columns.
        unsafe {
            let count = row.cast::<u64>().add((column % FigureRow::COLUMNS) as usize);
            count.write_volatile(count.read_volatile() + 1);
        }
    }
}
