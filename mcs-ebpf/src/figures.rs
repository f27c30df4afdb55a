//! Counts connections and refusals by import and source cluster, in the per-CPU map `figures`.

use aya_ebpf::Global;
use mcs_common::{
    Address, FigureRow, Refusal,
    select::{Choice, FrontendMatch},
};

use crate::{
    maps::{FIGURE_VIPS, FIGURES},
    per_cpu::Scratch,
};

/// How many rows `figures` has. With 0 nothing is counted, and the verifier removes the code.
#[unsafe(no_mangle)]
static FIGURE_ROWS: Global<u32> = Global::new(0);

/// A new connection goes to this backend.
#[inline(always)]
pub(crate) fn connected(frontend: &FrontendMatch, choice: &Choice) {
    let rows = FIGURE_ROWS.load();
    if rows != 0 {
        add(rows, frontend.state.service, FigureRow::column_of(choice.backend.cluster));
    }
}

/// A socket is refused, which has found its frontend.
#[inline(always)]
pub(crate) fn refused(frontend: &FrontendMatch, reason: Refusal) {
    let rows = FIGURE_ROWS.load();
    if rows != 0 {
        add(rows, frontend.state.service, reason.column());
    }
}

/// A socket is refused: the VIP has no such port.
#[inline(always)]
pub(crate) fn refused_port(vip: &Address) {
    let rows = FIGURE_ROWS.load();
    if rows != 0 {
        add(rows, import_of(vip), Refusal::UnknownPort.column());
    }
}

/// A packet is refused, with this counter.
#[inline(always)]
pub(crate) fn refused_packet(scratch: &Scratch, counter: u32) {
    let rows = FIGURE_ROWS.load();
    if rows != 0
        && let Some(reason) = Refusal::of_packet(counter)
    {
        let import = match reason {
            Refusal::UnknownPort => import_of(&scratch.tuple.dst),
            Refusal::NoBackend | Refusal::Collision => scratch.frontend.state.service,
        };
        add(rows, import, reason.column());
    }
}

/// The import of a VIP, by its index; 0 if it has no row.
#[inline(always)]
fn import_of(vip: &Address) -> u32 {
    // SAFETY: the pointer is to a value of the map. If the map reuses the element meanwhile, one refusal counts as that of
    // another import.
    FIGURE_VIPS.get_ptr(vip).map_or(0, |import| unsafe { import.read_volatile() })
}

/// Adds one on this CPU, as [`count`](crate::counters::count) does. The column is below [`FigureRow::COLUMNS`].
#[inline(always)]
fn add(rows: u32, import: u32, column: u32) {
    if let Some(row) = FIGURES.get_ptr_mut(FigureRow::row_of(import, rows)) {
        // SAFETY: the pointer is to this CPU's value of the map, which has more columns.
        unsafe {
            let count = row.cast::<u64>().add(column as usize);
            count.write_volatile(count.read_volatile() + 1);
        }
    }
}
