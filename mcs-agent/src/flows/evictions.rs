//! The record of whether the kernel may have evicted flows.

use std::{io, mem::offset_of, path::Path};

use mcs_common::{FlowEvictions, FlowsUsed, maps};

use super::{FlowTable, monotonic_ns, used_flag::FlowsUsedFlag};
use crate::bpf::{MappedArray, ReadWrite};

/// The map `flow_evictions`. The programs add the entries that they make to its count, and each sweep corrects it.
#[derive(Debug)]
pub struct EvictionRecord(MappedArray<FlowEvictions, ReadWrite>);

impl EvictionRecord {
    /// Opens the map in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        MappedArray::open(&state.join(maps::FLOW_EVICTIONS)).map(Self)
    }

    /// Fits the record to the flow table in the state directory, before the programs use the two together.
    ///
    /// If the record is new, or the table has another size than before, flows may have been evicted or left behind:
    /// unless the table is empty, the record then says that the latest eviction is now. So it does if the table is empty
    /// although flows were used: the loader makes a table of another shape anew.
    pub fn prepare(state: &Path) -> io::Result<()> {
        let table = FlowTable::open(&state.join(maps::FLOWS))?;
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let limit = FlowEvictions::limit_of(table.capacity().entries(), cpus);
        let mut record = Self::open(state)?;
        let was = record.get();
        let is_remade = FlowsUsedFlag::open(state)?.get() != FlowsUsed::NO && table.is_empty()?;
        if was.limit == limit && !is_remade {
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
