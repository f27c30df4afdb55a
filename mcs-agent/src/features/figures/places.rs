//! Gives imports their rows, and source clusters their columns.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use mcs_common::{Address, FigureRow, VipMode, select::Arrays as _};

use super::{
    Figures, NamedFigures, Names,
    kernel::{FigureMap, FigureVips},
};
use crate::core::{
    control::kernel::KernelMaps,
    feature::Columns,
    tables::{MapError, MapReader as _, Maps as _, NameMap, NameRecord, Realized, Step},
};

/// Gives rows and columns to imports and clusters, by the index that the config maps have for each. The control task owns it.
pub(crate) struct FigurePlaces {
    shared: Arc<Figures>,
    rows: BTreeMap<u32, u32>,
    free_rows: Vec<u32>,
    columns: BTreeMap<u32, u8>,
    vips: FigureVips,
}

impl FigurePlaces {
    /// Opens the new maps in the state directory, with this number of rows. `names`: the label of all other imports and
    /// clusters, and the label for slices that name no cluster.
    pub(crate) fn open(state: &Path, rows: u32, names: [&str; 2]) -> io::Result<Self> {
        let (map, names) = (FigureMap::open(state)?, Names::new(rows as usize, names));
        Ok(Self {
            shared: Arc::new(Figures(Mutex::new(NamedFigures { map, names }))),
            rows: BTreeMap::new(),
            free_rows: (1..rows).rev().collect(),
            columns: BTreeMap::new(),
            vips: FigureVips::open(state)?,
        })
    }

    /// The figures.
    pub(crate) fn shared(&self) -> Arc<Figures> {
        Arc::clone(&self.shared)
    }

    /// A frontend of this VIP is about to be one of this import.
    fn lead_to(
        &mut self,
        vip: Address,
        index: u32,
        import: u32,
        maps: &mut KernelMaps,
    ) -> io::Result<()> {
        self.meet_import(import, |id| maps.reader().name(NameMap::Services, id));
        self.meet_vip(vip, import);
        maps.set_row(index, self.row_of(import))
    }

    fn row_of(&self, import: u32) -> u32 {
        self.rows.get(&import).copied().unwrap_or(0)
    }

    fn column_of(&self, cluster: u32) -> u8 {
        if cluster == 0 {
            return FigureRow::UNKNOWN_CLUSTER;
        }
        self.columns.get(&cluster).copied().unwrap_or(0)
    }

    /// Gives the import a row, if it has none. Returns whether it did. Index 0 names nothing.
    fn meet_import(&mut self, id: u32, record: impl FnOnce(u32) -> Option<NameRecord>) -> bool {
        if id == 0 || self.rows.contains_key(&id) {
            return false;
        }
        let Some(row) = self.free_rows.last().copied() else { return false };
        let Some(record) = record(id) else { return false };
        let NamedFigures { map, names } = &mut *self.shared.lock();
        if map.clear(row).is_err() {
            return false;
        }
        names.set_import(row, Some(record.import().to_string().into()));
        self.free_rows.pop();
        self.rows.insert(id, row);
        true
    }

    /// As [`FigurePlaces::meet_import`].
    fn meet_cluster(&mut self, id: u32, record: impl FnOnce(u32) -> Option<NameRecord>) -> bool {
        if id == 0 || self.columns.contains_key(&id) {
            return false;
        }
        let Some(record) = record(id) else { return false };
        let column = self.shared.lock().names.column_of(&record.cluster());
        column.is_some_and(|column| self.columns.insert(id, column).is_none())
    }

    fn meet_vip(&mut self, vip: Address, import: u32) {
        match self.row_of(import) {
            0 => self.vips.remove(&vip),
            row => self.vips.set(vip, row),
        }
    }

    fn forget_import(&mut self, id: u32) {
        if let Some(row) = self.rows.remove(&id) {
            self.shared.lock().names.set_import(row, None);
            self.vips.remove_of(row);
            self.free_rows.push(row);
        }
    }
}

impl Columns for FigurePlaces {
    fn write(&mut self, step: &Step, maps: &mut KernelMaps) -> Result<(), MapError> {
        let placed = match step {
            Step::WriteName { map: NameMap::Services, id, .. } => {
                self.forget_import(*id);
                Ok(())
            }
            Step::WriteName { map: NameMap::Clusters, id, .. } => {
                self.columns.remove(id);
                Ok(())
            }
            Step::InsertFrontend { key, index } => {
                let service = maps.reader().state(*index).map_or(0, |state| state.service);
                self.lead_to(key.vip, *index, service, maps)
            }
            Step::UpdateAttributes { index, service, .. } => {
                let vip = maps.reader().state(*index).map(|state| state.key.vip);
                vip.map_or(Ok(()), |vip| self.lead_to(vip, *index, *service, maps))
            }
            Step::DeleteVip(vip) => {
                self.vips.remove(vip);
                Ok(())
            }
            Step::SetVipMode { vip, mode } if *mode != VipMode::SERVED => {
                self.vips.remove(vip);
                Ok(())
            }
            _ => Ok(()),
        };
        let failed = |error| MapError::writing(step, error);
        placed.map_err(failed)?;
        maps.write(step)?;
        match step {
            Step::WriteBackend { id, backend } => {
                self.meet_cluster(backend.cluster, |id| maps.reader().name(NameMap::Clusters, id));
                maps.set_column(*id, self.column_of(backend.cluster)).map_err(failed)
            }
            Step::WriteState { index, state } => {
                maps.set_row(*index, self.row_of(state.service)).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// Follows the maps: imports that are no longer used give their rows to others. The caller calls it again each second.
    fn follow(&mut self, realized: &Realized, maps: &mut KernelMaps) -> io::Result<()> {
        let is_unused = |id: &u32| !realized.uses_name(NameMap::Services, *id);
        for id in self.rows.keys().copied().filter(is_unused).collect::<Vec<_>>() {
            self.forget_import(id);
        }
        let count = realized.name_count(NameMap::Services);
        let mut is_new = false;
        if self.rows.len() < count && !self.free_rows.is_empty() {
            for id in realized.names_used(NameMap::Services) {
                is_new |= self.meet_import(id, |id| Some(realized.name(NameMap::Services, id)));
            }
            if is_new {
                realized.vip_imports().for_each(|(vip, import)| self.meet_vip(vip, import));
            }
        }
        if self.columns.len() < realized.name_count(NameMap::Clusters) {
            for id in realized.names_used(NameMap::Clusters) {
                is_new |= self.meet_cluster(id, |id| Some(realized.name(NameMap::Clusters, id)));
            }
        }
        self.shared.lock().names.without_row = count.saturating_sub(self.rows.len());
        if is_new { self.fill(maps) } else { Ok(()) }
    }

    fn fill(&self, maps: &mut KernelMaps) -> io::Result<()> {
        maps.set_columns(|import| self.row_of(import), |cluster| self.column_of(cluster))
    }
}
