//! The move of all flows to a table of another size.

use std::{io, path::Path};

use super::{CopiedFlows, FlowTable, monotonic_ns};

/// The move of flows to a table of another size (`--max-flows` has changed). Programs of an earlier agent may
/// begin flows in the old table after the last copy. Their next packet begins them again, at the same backend as long as
/// the frontend has the same backends.
#[derive(Debug)]
pub struct FlowMigration {
    tables: Option<(FlowTable, FlowTable)>,
    copied_until_ns: u64,
}

impl FlowMigration {
    /// Opens both tables if there is an old one.
    pub fn find(old: &Path, new: &Path) -> Self {
        let open = || -> io::Result<_> { Ok((FlowTable::open(old)?, FlowTable::open(new)?)) };
        let tables = if old.exists() { open().inspect_err(warn).ok() } else { None };
        Self { tables, copied_until_ns: 0 }
    }

    /// Copies the flows that had a packet since the last copy.
    pub fn copy(&mut self) {
        let Some((old, new)) = &mut self.tables else { return };
        let now = monotonic_ns();
        match new.copy_from(old, self.copied_until_ns) {
            Ok(CopiedFlows { copied, left_out }) if self.copied_until_ns == 0 => {
                tracing::info!(copied, left_out, "the flow table is of another size: flows moved");
            }
            Ok(_) => {}
            Err(error) => warn(&error),
        }
        self.copied_until_ns = now;
    }
}

fn warn(error: &io::Error) {
    tracing::warn!(
        "the flow table is of another size and flows cannot be moved to the new one: {error}; the next packet \
         begins them again"
    );
}
