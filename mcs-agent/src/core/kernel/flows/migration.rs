//! The move of all flows from other tables.

use std::{io, path::Path};

use super::{CopiedFlows, FlowPins, FlowTable, monotonic_ns};

/// The move of flows from tables of another size (`--max-flows` has changed, perhaps more than once before a start succeeds).
/// Programs of an earlier agent may begin flows in another table after the last copy. Their next packet begins them again, at
/// the same backend as long as the frontend has the same backends.
#[derive(Debug)]
pub struct FlowMigration {
    former: Vec<FlowTable>,
    table: Option<FlowTable>,
    copied_until_ns: u64,
}

impl FlowMigration {
    /// Opens the tables if there are others.
    pub fn find(pins: &FlowPins) -> Self {
        let open = |pin: &Path| FlowTable::open(pin).inspect_err(warn).ok();
        let former: Vec<_> = pins.former.iter().filter_map(|pin| open(pin)).collect();
        let table = if former.is_empty() { None } else { open(&pins.table) };
        Self { former, table, copied_until_ns: 0 }
    }

    /// Copies the flows that had a packet since the last copy.
    pub fn copy(&mut self) {
        let Some(table) = &mut self.table else { return };
        let now = monotonic_ns();
        match table.copy_from(&self.former, self.copied_until_ns) {
            Ok(CopiedFlows { copied, left_out }) if self.copied_until_ns == 0 => {
                tracing::info!(copied, left_out, "there are flows in another table: flows moved");
            }
            Ok(_) => {}
            Err(error) => warn(&error),
        }
        self.copied_until_ns = now;
    }
}

fn warn(error: &io::Error) {
    tracing::warn!(
        "there is another flow table and its flows cannot be moved: {error}; the next packet begins them again"
    );
}
