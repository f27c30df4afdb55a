//! Counts connections and refusals by import and source cluster, in the per-CPU map `figures`.

use aya_ebpf::{Global, bindings::BPF_F_MMAPABLE, btf_maps::Array};
use mcs_common::{
    Address, FigureRow, Refusal,
    select::{Choice, FrontendMatch},
};

use crate::{
    maps::{FIGURE_COLUMNS, FIGURE_ROWS, FIGURE_VIPS, FIGURES},
    per_cpu::Scratch,
};

/// 1 if imports are counted. With 0 the verifier removes the code.
#[unsafe(no_mangle)]
static COUNT_IMPORTS: Global<u8> = Global::new(0);

/// A new connection goes to this backend.
#[inline(always)]
pub(crate) fn connected(frontend: &FrontendMatch, choice: &Choice) {
    if COUNT_IMPORTS.load() != 0 {
        let row = place(&FIGURE_ROWS, frontend.state.service);
        add(row, place(&FIGURE_COLUMNS, choice.backend.cluster));
    }
}

/// A socket is refused, which has found its frontend.
#[inline(always)]
pub(crate) fn refused(frontend: &FrontendMatch, reason: Refusal) {
    if COUNT_IMPORTS.load() != 0 {
        add(place(&FIGURE_ROWS, frontend.state.service), reason.column());
    }
}

/// A socket is refused: the VIP has no such port.
#[inline(always)]
pub(crate) fn refused_port(vip: &Address) {
    if COUNT_IMPORTS.load() != 0 {
        add(row_of(vip), Refusal::UnknownPort.column());
    }
}

/// A packet is refused, with this counter.
#[inline(always)]
pub(crate) fn refused_packet(scratch: &Scratch, counter: u32) {
    if COUNT_IMPORTS.load() != 0
        && let Some(reason) = Refusal::of_packet(counter)
    {
        add(row_of(&scratch.tuple.dst), reason.column());
    }
}

/// The row or column that an array names; 0 beyond its end.
#[inline(always)]
fn place<const N: usize>(
    places: &'static Array<u32, N, { BPF_F_MMAPABLE as usize }>,
    index: u32,
) -> u32 {
    // SAFETY: the pointer is to a value of the array.
    places.get_ptr(index).map_or(0, |place| unsafe { place.read_volatile() })
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
