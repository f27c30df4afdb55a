//! Gives imports their rows, and source clusters their columns.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use mcs_common::{Address, FigureRow, VipMode, select::Arrays as _};

use super::{
    Figures,
    kernel::{FigureMap, FigureVips},
};
use crate::{
    dataplane::KernelMaps,
    reconcile::{MapError, MapReader as _, Maps as _, NameMap, NameRecord, Realized, Step},
};

/// An import gets the row of another one if it has this many times its slots.
const RATIO: u32 = 2;
/// The shortest time between rankings. A ranking visits every frontend: 1 ms for 10,000.
const RANKED_EVERY: Duration = Duration::from_secs(5);

/// Gives rows and columns to imports and clusters. The control task owns it.
pub struct FigurePlaces {
    shared: Arc<Figures>,
    rows: Places,
    columns: Places,
    vips: FigureVips,
    ranked: Option<Instant>,
}

impl FigurePlaces {
    /// Opens the new maps in the state directory, with this number of rows. `names`: the label of all other imports and
    /// clusters, and the label for slices that name no cluster.
    pub fn open(state: &Path, rows: u32, names: [&str; 2]) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Figures::new(FigureMap::open(state)?, rows, names)),
            rows: Places::new(1..rows),
            columns: Places::new(FigureRow::UNKNOWN_CLUSTER + 1..FigureRow::CLUSTERS),
            vips: FigureVips::open(state)?,
            ranked: None,
        })
    }

    /// The figures.
    pub fn shared(&self) -> Arc<Figures> {
        Arc::clone(&self.shared)
    }

    /// Does a step, with the row or column of what it writes.
    pub fn write(&mut self, step: &Step, maps: &mut KernelMaps) -> Result<(), MapError> {
        let placed = match step {
            Step::WriteName { map: NameMap::Services, id, .. } => {
                self.forget_import(*id);
                Ok(())
            }
            Step::WriteName { map: NameMap::Clusters, id, .. } => {
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
                self.meet_cluster(backend.cluster, |id| maps.name(NameMap::Clusters, id));
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
        self.meet_import(import, |id| maps.name(NameMap::Services, id));
        self.meet_vip(vip, import);
        maps.set_row(index, self.row_of(import))
    }

    /// Follows the maps: imports and clusters that are no longer used give their places to others, and small imports to
    /// large ones. The caller calls it again each second.
    pub fn follow(&mut self, realized: &Realized, maps: &mut KernelMaps) -> io::Result<()> {
        for id in self.rows.unused(|id| realized.uses_name(NameMap::Services, id)) {
            self.forget_import(id);
        }
        for id in self.columns.unused(|id| realized.uses_name(NameMap::Clusters, id)) {
            self.forget_cluster(id);
        }
        let mut is_new = false;
        let is_due = self.ranked.is_none_or(|ranked| ranked.elapsed() >= RANKED_EVERY);
        if self.rows.of.len() < realized.names_used(NameMap::Services).len()
            && (self.rows.has_room() || is_due)
        {
            self.ranked = Some(Instant::now());
            let Ranked { small, large } = Ranked::of(&realized.slots_of_services(), &self.rows);
            for id in &small {
                self.forget_import(*id);
            }
            if !small.is_empty() {
                // No program counts in these rows any more before they get another name.
                self.fill(maps)?;
            }
            for id in large {
                is_new |= self.meet_import(id, |id| Some(realized.name(NameMap::Services, id)));
            }
            if is_new {
                realized.vip_imports().for_each(|(vip, import)| self.meet_vip(vip, import));
            }
        }
        if self.columns.has_room()
            && self.columns.of.len() < realized.names_used(NameMap::Clusters).len()
        {
            for id in realized.names_used(NameMap::Clusters) {
                is_new |= self.meet_cluster(id, |id| Some(realized.name(NameMap::Clusters, id)));
            }
        }
        if is_new { self.fill(maps) } else { Ok(()) }
    }

    /// Writes all places to maps that may have none, or the places of another agent.
    pub fn fill(&self, maps: &mut KernelMaps) -> io::Result<()> {
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
    fn meet_import(&mut self, id: u32, record: impl FnOnce(u32) -> Option<NameRecord>) -> bool {
        let Some(row) = self.rows.place_for(id) else { return false };
        let Some(record) = record(id) else { return false };
        let name = record.import().to_string().into();
        self.shared.names().set_import(row, name, |row| self.shared.row(row));
        self.rows.give(id, row);
        true
    }

    /// As [`FigurePlaces::meet_import`].
    fn meet_cluster(&mut self, id: u32, record: impl FnOnce(u32) -> Option<NameRecord>) -> bool {
        let Some(column) = self.columns.place_for(id) else { return false };
        let Some(record) = record(id) else { return false };
        let name = record.cluster().into();
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
            self.shared.names().forget_import(row);
            self.vips.remove_of(row);
        }
    }

    fn forget_cluster(&mut self, id: u32) {
        if let Some(column) = self.columns.take(id) {
            self.shared.names().forget_cluster(column);
        }
    }
}

/// Large imports without a row, and small imports that lose their rows to some of them.
#[derive(PartialEq, Eq, Debug)]
struct Ranked {
    small: Vec<u32>,
    /// The largest first.
    large: Vec<u32>,
}

impl Ranked {
    /// Ranks by the slots of each import. If one slot more sufficed, figures would come and go with each endpoint.
    fn of(slots: &BTreeMap<u32, u32>, rows: &Places) -> Self {
        let (mut with, mut without): (Vec<_>, Vec<_>) =
            slots.iter().map(|(id, slots)| (*slots, *id)).partition(|(_, id)| rows.has(*id));
        with.sort_unstable();
        without.sort_unstable_by(|one, other| other.cmp(one));
        let free = rows.free.len();
        let beyond = without.iter().skip(free);
        let gives_way = |(small, large): &(&(u32, u32), &(u32, u32))| {
            large.0 > 0 && large.0 >= small.0.saturating_mul(RATIO)
        };
        let small: Vec<_> =
            with.iter().zip(beyond).take_while(gives_way).map(|(small, _)| small.1).collect();
        without.truncate(free + small.len());
        Self { small, large: without.into_iter().map(|(_, id)| id).collect() }
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

    fn has(&self, id: u32) -> bool {
        self.of.contains_key(&id)
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// A free place, if this index needs one. Index 0 names nothing.
    fn place_for(&self, id: u32) -> Option<u32> {
        if id == 0 || self.has(id) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(placed: &[(u32, u32)], others: &[(u32, u32)], free: u32) -> Ranked {
        let count = u32::try_from(placed.len()).unwrap();
        let mut rows = Places::new(1..count + free + 1);
        for ((id, _), row) in placed.iter().zip(1..) {
            rows.give(*id, row);
        }
        Ranked::of(&placed.iter().chain(others).copied().collect(), &rows)
    }

    #[test]
    fn an_import_gives_way_to_one_that_is_twice_as_large() {
        let placed = [(1, 10), (2, 4), (3, 5)];
        for (others, free, small, large) in [
            (&[][..], 0, &[][..], &[][..]),
            (&[(4, 7)], 0, &[], &[]),
            (&[(4, 8)], 0, &[2], &[4]),
            (&[(4, 8), (5, 40), (6, 30), (7, 9)], 0, &[2, 3], &[5, 6]),
            (&[(4, 1), (5, 40)], 1, &[], &[5]),
            (&[(4, 0), (5, 40)], 3, &[], &[5, 4]),
        ] {
            let expected = Ranked { small: small.into(), large: large.into() };
            assert_eq!(ranked(&placed, others, free), expected, "{others:?}");
        }
        let refusing = ranked(&[(1, 0)], &[(2, 0)], 0);
        assert_eq!(refusing, Ranked { small: vec![], large: vec![] });
    }
}
