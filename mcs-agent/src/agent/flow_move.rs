use std::io;

use crate::{
    dataplane::{FlowTable, TakenOver, monotonic_ns},
    loader::Pins,
};

/// Flows on their way to a table of another size (`--max-flows` was changed). Those that the
/// programs of an earlier agent begin after the last copy begin anew, which finds the same backend
/// as long as the set is the same.
pub(super) struct FlowMove {
    tables: Option<(FlowTable, FlowTable)>,
    copied_until_ns: u64,
}

impl FlowMove {
    /// Looks whether there is a table to leave.
    pub(super) fn find(pins: &Pins) -> Self {
        let old = pins.old_flows();
        let open =
            || -> io::Result<_> { Ok((FlowTable::open(&old)?, FlowTable::open(&pins.flows())?)) };
        let tables = if old.exists() { open().inspect_err(warn).ok() } else { None };
        Self { tables, copied_until_ns: 0 }
    }

    /// Copies what came since the last copy.
    pub(super) fn copy(&mut self) {
        let Some((old, new)) = &mut self.tables else { return };
        let now = monotonic_ns();
        match new.take_over(old, self.copied_until_ns) {
            Ok(TakenOver { taken, left_out }) if self.copied_until_ns == 0 => {
                tracing::info!(taken, left_out, "the flow table is of another size: flows moved");
            }
            Ok(_) => {}
            Err(error) => warn(&error),
        }
        self.copied_until_ns = now;
    }
}

fn warn(error: &io::Error) {
    tracing::warn!(
        "the flow table is of another size and flows cannot be moved to the new one: {error}; they \
         begin anew"
    );
}
