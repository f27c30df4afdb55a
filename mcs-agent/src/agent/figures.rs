//! Figures of imports: which import and source cluster each row and column in the map of the programs stands for.
//!
//! Another import or cluster can get the row or column later. The counts until then are subtracted.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytemuck::Zeroable as _;
use mcs_common::{
    Address, ClusterRecord, FigureRow, Refusal, ServiceRecord, VipMode, select::Arrays as _,
};

use super::metrics::{OTHER, UNKNOWN};
use crate::{
    dataplane::{FigureMap, FigureVips, KernelMaps},
    loader::Pins,
    reconcile::{MapError, MapReader as _, Maps as _, Realized, Step, convert},
};

/// The figures, for the threads that serve metrics.
pub(super) struct Figures {
    map: FigureMap,
    names: Mutex<Names>,
}

/// Counts since the agent started, each with its labels.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    /// By import and source cluster.
    pub(super) connections: Vec<([Arc<str>; 2], u64)>,
    /// By import and reason.
    pub(super) refusals: Vec<([Arc<str>; 2], u64)>,
}

impl Figures {
    /// Every count that is not zero.
    pub(super) fn read(&self) -> Counts {
        let indices = self.names().used();
        // Before the names: what gets another name meanwhile has no count at all.
        let rows: Vec<_> =
            indices.into_iter().filter_map(|row| Some((row, self.map.row(row).ok()?))).collect();
        self.names().counts(&rows)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts that cannot be read hide the place for ever: that is better than a wrong count.
    fn row(&self, index: u32) -> FigureRow {
        self.map.row(index).unwrap_or(FigureRow { counts: [u64::MAX; FigureRow::COLUMNS as usize] })
    }
}

/// Gives rows and columns to imports and clusters. The control task has it.
pub(super) struct FigureKeeper {
    shared: Arc<Figures>,
    rows: Places,
    columns: Places,
    vips: FigureVips,
}

impl FigureKeeper {
    /// Opens the maps, which are new. There are so many rows.
    pub(super) fn open(pins: &Pins, rows: u32) -> io::Result<Self> {
        let state = pins.state();
        let names = Mutex::new(Names::new(rows as usize));
        Ok(Self {
            shared: Arc::new(Figures { map: FigureMap::open(&state)?, names }),
            rows: Places::new(1..rows),
            columns: Places::new(FigureRow::UNKNOWN_CLUSTER + 1..FigureRow::CLUSTERS),
            vips: FigureVips::open(&state)?,
        })
    }

    /// The figures.
    pub(super) fn shared(&self) -> Arc<Figures> {
        Arc::clone(&self.shared)
    }

    /// Does a step, with the row or column of what it writes.
    pub(super) fn write(&mut self, step: &Step, maps: &mut KernelMaps) -> Result<(), MapError> {
        let placed = match step {
            Step::WriteService { id, .. } => {
                self.forget_import(*id);
                Ok(())
            }
            Step::WriteCluster { id, .. } => {
                self.forget_cluster(*id);
                Ok(())
            }
            Step::InsertFrontend { key, index } => {
                let service = maps.state(*index).map_or(0, |state| state.service);
                self.lead_to(key.vip, *index, service, maps)
            }
            Step::UpdateAttributes { index, service, .. } => {
                let vip = maps.state(*index).map(|state| state.key.vip);
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
                self.meet_cluster(backend.cluster, |id| maps.cluster(id));
                maps.set_column(*id, self.column_of(backend.cluster)).map_err(failed)
            }
            Step::WriteState { index, state } => {
                maps.set_row(*index, self.row_of(state.service)).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// A frontend of this VIP is about to be one of this import.
    fn lead_to(
        &mut self,
        vip: Address,
        index: u32,
        import: u32,
        maps: &mut KernelMaps,
    ) -> io::Result<()> {
        self.meet_import(import, |id| maps.service(id));
        self.meet_vip(vip, import);
        maps.set_row(index, self.row_of(import))
    }

    /// Follows the maps after a round: what nothing refers to any more makes room for what has no place of its own.
    pub(super) fn follow(&mut self, realized: &Realized, maps: &mut KernelMaps) -> io::Result<()> {
        for id in self.rows.unused(|id| realized.uses_service(id)) {
            self.forget_import(id);
        }
        for id in self.columns.unused(|id| realized.uses_cluster(id)) {
            self.forget_cluster(id);
        }
        let mut is_new = false;
        if self.rows.has_room() && self.rows.of.len() < realized.services_used().len() {
            for id in realized.services_used() {
                is_new |= self.meet_import(id, |id| Some(realized.service(id)));
            }
            realized.vip_imports().for_each(|(vip, import)| self.meet_vip(vip, import));
        }
        if self.columns.has_room() && self.columns.of.len() < realized.clusters_used().len() {
            for id in realized.clusters_used() {
                is_new |= self.meet_cluster(id, |id| Some(realized.cluster(id)));
            }
        }
        if is_new { self.fill(maps) } else { Ok(()) }
    }

    /// Writes all places to maps that may have none, or those of another agent.
    pub(super) fn fill(&self, maps: &mut KernelMaps) -> io::Result<()> {
        maps.set_figures(|import| self.row_of(import), |cluster| self.column_of(cluster))
    }

    fn row_of(&self, import: u32) -> u32 {
        self.rows.of.get(&import).copied().unwrap_or(0)
    }

    fn column_of(&self, cluster: u32) -> u8 {
        let unnamed = (cluster == 0).then_some(FigureRow::UNKNOWN_CLUSTER);
        let column = unnamed.or_else(|| self.columns.of.get(&cluster).copied());
        column.and_then(|column| u8::try_from(column).ok()).unwrap_or(0)
    }

    /// Gives the import a row, if it has none. Returns whether it did.
    fn meet_import(&mut self, id: u32, record: impl FnOnce(u32) -> Option<ServiceRecord>) -> bool {
        let Some(row) = self.rows.place_for(id) else { return false };
        let Some(record) = record(id) else { return false };
        let name = convert::service_key(&record).to_string().into();
        self.shared.names().set_import(row, name, |row| self.shared.row(row));
        self.rows.give(id, row);
        true
    }

    /// As [`FigureKeeper::meet_import`].
    fn meet_cluster(&mut self, id: u32, record: impl FnOnce(u32) -> Option<ClusterRecord>) -> bool {
        let Some(column) = self.columns.place_for(id) else { return false };
        let Some(record) = record(id) else { return false };
        let name = convert::cluster_name(&record).into();
        self.shared.names().set_cluster(column, name, |row| self.shared.row(row));
        self.columns.give(id, column);
        true
    }

    fn meet_vip(&mut self, vip: Address, import: u32) {
        match self.row_of(import) {
            0 => self.vips.remove(&vip),
            row => self.vips.set(vip, row),
        }
    }

    fn forget_import(&mut self, id: u32) {
        if let Some(row) = self.rows.take(id) {
            self.shared.names().imports[row as usize].name = None;
            self.vips.remove_of(row);
        }
    }

    fn forget_cluster(&mut self, id: u32) {
        if let Some(column) = self.columns.take(id) {
            self.shared.names().clusters[column as usize].name = None;
        }
    }
}

/// Rows of imports, or columns of source clusters, by the index that the config maps have for the import or cluster.
struct Places {
    of: BTreeMap<u32, u32>,
    free: BTreeSet<u32>,
}

impl Places {
    fn new(all: Range<u32>) -> Self {
        Self { of: BTreeMap::new(), free: all.collect() }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// A free place, if this index needs one. Index 0 names nothing.
    fn place_for(&self, id: u32) -> Option<u32> {
        if id == 0 || self.of.contains_key(&id) {
            return None;
        }
        self.free.first().copied()
    }

    fn give(&mut self, id: u32, place: u32) {
        self.free.remove(&place);
        self.of.insert(id, place);
    }

    fn take(&mut self, id: u32) -> Option<u32> {
        let place = self.of.remove(&id)?;
        self.free.insert(place);
        Some(place)
    }

    fn unused(&self, is_used: impl Fn(u32) -> bool) -> Vec<u32> {
        self.of.keys().copied().filter(|id| !is_used(*id)).collect()
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The names of rows and columns.
struct Names {
    /// By row. The first one is of all imports without a row of their own.
    imports: Vec<Import>,
    /// By column.
    clusters: Vec<Cluster>,
}

#[derive(Clone)]
struct Import {
    name: Option<Arc<str>>,
    was_named: bool,
    /// The counts that are not of this import or these clusters.
    before: FigureRow,
}

#[derive(Clone, Default)]
struct Cluster {
    name: Option<Arc<str>>,
    was_named: bool,
}

impl Names {
    fn new(rows: usize) -> Self {
        let unnamed = Import { name: None, was_named: false, before: FigureRow::zeroed() };
        let mut imports = vec![unnamed; rows];
        if let Some(others) = imports.first_mut() {
            (others.name, others.was_named) = (Some(OTHER.into()), true);
        }
        let mut clusters = vec![Cluster::default(); FigureRow::CLUSTERS as usize];
        for (column, name) in clusters.iter_mut().zip([OTHER, UNKNOWN]) {
            column.name = Some(name.into());
        }
        Self { imports, clusters }
    }

    /// The rows with a name.
    fn used(&self) -> Vec<u32> {
        let named = self.imports.iter().enumerate().filter(|(_, import)| import.name.is_some());
        named.map(|(row, _)| number(row)).collect()
    }

    /// Names a row. `read` returns the counts that a row has now.
    fn set_import(&mut self, row: u32, name: Arc<str>, read: impl Fn(u32) -> FigureRow) {
        // An import that comes back can get another row before the former one has another name.
        self.imports
            .iter_mut()
            .filter(|one| one.name.as_ref() == Some(&name))
            .for_each(|one| one.name = None);
        let import = &mut self.imports[row as usize];
        if import.was_named {
            import.before = read(row);
        }
        (import.name, import.was_named) = (Some(name), true);
    }

    /// Names a column. `read` returns the counts that a row has now.
    fn set_cluster(&mut self, column: u32, name: Arc<str>, read: impl Fn(u32) -> FigureRow) {
        let column = column as usize;
        self.clusters[2..]
            .iter_mut()
            .filter(|one| one.name.as_ref() == Some(&name))
            .for_each(|one| one.name = None);
        if self.clusters[column].was_named {
            let rows = self.imports.iter_mut().enumerate().filter(|(_, one)| one.was_named);
            for (row, import) in rows {
                import.before.counts[column] = read(number(row)).counts[column];
            }
        }
        self.clusters[column] = Cluster { name: Some(name), was_named: true };
    }

    /// The counts in these rows.
    fn counts(&self, rows: &[(u32, FigureRow)]) -> Counts {
        let mut counts = Counts::default();
        for (row, now) in rows {
            let import = &self.imports[*row as usize];
            let Some(name) = &import.name else { continue };
            let since = |column: usize| {
                now.counts[column]
                    .checked_sub(import.before.counts[column])
                    .filter(|count| *count > 0)
            };
            for (column, cluster) in self.clusters.iter().enumerate() {
                if let (Some(cluster), Some(count)) = (&cluster.name, since(column)) {
                    counts.connections.push(([name.clone(), cluster.clone()], count));
                }
            }
            for refusal in Refusal::ALL {
                if let Some(count) = since(refusal.column() as usize) {
                    counts.refusals.push(([name.clone(), refusal.name().into()], count));
                }
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Columns.
    const EAST: u32 = 2;
    const WEST: u32 = 3;

    /// The map of the programs.
    struct Kernel(RefCell<Vec<FigureRow>>);

    impl Kernel {
        fn new() -> Self {
            Self(RefCell::new(vec![FigureRow::zeroed(); 3]))
        }

        fn add(&self, row: usize, column: u32, count: u64) {
            self.0.borrow_mut()[row].counts[column as usize] += count;
        }

        fn row(&self, row: u32) -> FigureRow {
            self.0.borrow()[row as usize]
        }

        /// The counts as text: `import cluster count`.
        fn says(&self, names: &Names) -> String {
            let rows: Vec<_> = names.used().into_iter().map(|row| (row, self.row(row))).collect();
            let Counts { connections, refusals } = names.counts(&rows);
            let lines = connections.into_iter().chain(refusals);
            lines.map(|([one, two], count)| format!("{one} {two} {count}\n")).collect()
        }
    }

    /// Row 1 is of `shop/web`.
    fn names(kernel: &Kernel) -> Names {
        let mut names = Names::new(3);
        let read = |row| kernel.row(row);
        names.set_import(1, "shop/web".into(), read);
        names.set_cluster(EAST, "east".into(), read);
        names.set_cluster(WEST, "west".into(), read);
        names
    }

    #[test]
    fn a_row_with_another_name_begins_at_zero() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        kernel.add(1, EAST, 5);
        kernel.add(1, Refusal::NoBackend.column(), 2);
        kernel.add(1, 1, 1);
        kernel.add(0, 0, 3);
        let first = "other other 3\nshop/web unknown 1\nshop/web east 5\nshop/web no_backend 2\n";
        assert_eq!(kernel.says(&names), first);

        names.imports[1].name = None;
        assert_eq!(kernel.says(&names), "other other 3\n");
        names.set_import(1, "shop/cart".into(), |row| kernel.row(row));
        assert_eq!(kernel.says(&names), "other other 3\n");
        kernel.add(1, EAST, 1);
        assert_eq!(kernel.says(&names), "other other 3\nshop/cart east 1\n");
    }

    #[test]
    fn a_column_with_another_name_begins_at_zero_in_each_row() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        (0..2).for_each(|row| kernel.add(row, EAST, 5));
        kernel.add(1, WEST, 7);
        names.clusters[EAST as usize].name = None;
        names.set_cluster(EAST, "north".into(), |row| kernel.row(row));
        assert_eq!(kernel.says(&names), "shop/web west 7\n");
        (0..2).for_each(|row| kernel.add(row, EAST, 1));
        assert_eq!(kernel.says(&names), "other north 1\nshop/web north 1\nshop/web west 7\n");
    }

    #[test]
    fn a_name_that_moves_is_not_counted_twice() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        let read = |row| kernel.row(row);
        kernel.add(1, EAST, 5);
        names.set_import(2, "shop/web".into(), read);
        names.set_cluster(4, "east".into(), read);
        kernel.add(2, 4, 1);
        assert_eq!(kernel.says(&names), "shop/web east 1\n");
    }

    #[test]
    fn what_was_read_before_a_change_of_names_has_no_count() {
        let kernel = Kernel::new();
        let mut names = names(&kernel);
        kernel.add(1, EAST, 5);
        let read = kernel.row(1);
        kernel.add(1, EAST, 1);
        names.set_import(1, "shop/cart".into(), |row| kernel.row(row));
        assert_eq!(names.counts(&[(1, read)]), Counts::default());
    }
}
