//! What a table can lose: the record of whether the kernel may have evicted flows, and the move of all flows from other
//! tables.

use std::{io, mem::offset_of, path::Path};

use mcs_common::{FlowEvictions, FlowsUsed};

use super::{CopiedFlows, FlowPins, FlowTable, monotonic_ns, scan::FlowsUsedFlag};
use crate::core::kernel::bpf::{MappedArray, ReadWrite};

/// The map `flow_evictions`. The programs add the entries that they make to its count, and each sweep corrects it.
#[derive(Debug)]
pub struct EvictionRecord(MappedArray<FlowEvictions, ReadWrite>);

impl EvictionRecord {
    /// Opens the pinned map.
    pub fn open(pins: &FlowPins) -> io::Result<Self> {
        MappedArray::open(&pins.evictions).map(Self)
    }

    /// Fits the record to the flow table, before the programs use the two together.
    ///
    /// If the record is new, or flows come from another table, some may have been evicted or left behind: unless the table is
    /// empty, the record then says that the latest eviction is now. So it does if the table is empty although flows were
    /// used: those of a table of another shape cannot be read.
    pub fn prepare(pins: &FlowPins) -> io::Result<()> {
        let table = FlowTable::open(&pins.table)?;
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let limit = FlowEvictions::limit_of(table.capacity().entries(), cpus);
        let mut record = Self::open(pins)?;
        let was = record.get();
        let mut used = FlowsUsedFlag::open(pins)?;
        let is_empty = table.is_empty()?;
        if !is_empty {
            // The flag is new where the pinned one was damaged.
            used.used()?;
        }
        let is_remade = is_empty && used.get() != FlowsUsed::NO;
        if was.limit == limit && !is_remade && pins.former.is_empty() {
            return Ok(());
        }
        let mut entries = 0;
        table.for_each(|_| entries += 1)?;
        let may_lack = entries > 0 || is_remade;
        let latest_ns = if may_lack { monotonic_ns() } else { was.latest_ns };
        record.0.write(0, &FlowEvictions { entries, limit, latest_ns })
    }

    /// What the map says.
    pub fn get(&self) -> FlowEvictions {
        self.0.read(0).unwrap_or_default()
    }

    /// Notes how many entries a sweep has counted, and that [`FlowEvictions::entries`] was `before` when
    /// the sweep began.
    pub fn counted(&mut self, entries: u64, before: u64) -> io::Result<()> {
        let added = self.get().entries.saturating_sub(before);
        let offset = offset_of!(FlowEvictions, entries);
        self.0.publish_word(0, offset, entries.saturating_add(added))
    }
}

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
