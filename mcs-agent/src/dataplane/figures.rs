//! The figures of imports that the programs count, and what tells the programs where to count.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use aya::maps::{Map, MapData, PerCpuArray};
use mcs_common::{Address, FigureRow, maps};

use crate::bpf::{MappedArray, PinnedHash, ReadWrite, into_io};

/// The pinned figures.
pub struct FigureMap(PerCpuArray<MapData, FigureRow>);

impl FigureMap {
    /// Opens the map in the state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        let map = MapData::from_pin(state.join(maps::FIGURES)).map_err(into_io)?;
        PerCpuArray::try_from(Map::PerCpuArray(map)).map(Self).map_err(into_io)
    }

    /// The figures of an import, summed over CPUs.
    pub fn row(&self, index: u32) -> io::Result<FigureRow> {
        let mut sum = FigureRow { counts: Default::default() };
        for row in self.0.get(&index, 0).map_err(into_io)?.iter() {
            for (sum, count) in sum.counts.iter_mut().zip(row.counts) {
                *sum = sum.wrapping_add(count);
            }
        }
        Ok(sum)
    }
}

/// The rows of imports, or the columns of source clusters. The programs find them by the index that the config maps have
/// for the import or cluster.
pub struct FigurePlaces {
    name: &'static str,
    map: MappedArray<u32, ReadWrite>,
    places: BTreeMap<u32, u32>,
    free: BTreeSet<u32>,
}

impl FigurePlaces {
    /// The rows that are not row 0. There are so many with that one.
    pub fn rows(state: &Path, rows: u32) -> io::Result<Self> {
        Self::open(state, maps::FIGURE_ROWS, (1..rows).collect())
    }

    /// The columns. The first two are of all others, and of those without a name.
    pub fn columns(state: &Path) -> io::Result<Self> {
        let mut columns =
            Self::open(state, maps::FIGURE_COLUMNS, (1..FigureRow::CLUSTERS).collect())?;
        columns.give(0);
        Ok(columns)
    }

    fn open(state: &Path, name: &'static str, free: BTreeSet<u32>) -> io::Result<Self> {
        let map = MappedArray::open(&state.join(name))?;
        Ok(Self { name, map, places: BTreeMap::new(), free })
    }

    /// Continues with another map in the place of this one.
    pub fn reopen(&mut self, state: &Path) -> io::Result<()> {
        self.map = MappedArray::open(&state.join(self.name))?;
        self.places.iter().try_for_each(|(id, place)| self.map.store(*id, *place))
    }

    /// The place of what has this index.
    pub fn of(&self, id: u32) -> Option<u32> {
        self.places.get(&id).copied()
    }

    /// How many have a place.
    pub fn used(&self) -> usize {
        self.places.len()
    }

    /// Whether one more can have a place.
    pub fn have_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The place that [`FigurePlaces::give`] gives next.
    pub fn next(&self) -> Option<u32> {
        self.free.first().copied()
    }

    /// Gives the next place to what has this index.
    pub fn give(&mut self, id: u32) {
        if let Some(place) = self.next()
            && self.map.store(id, place).is_ok()
        {
            self.free.remove(&place);
            self.places.insert(id, place);
        }
    }

    /// Takes the place from what has this index. Returns it.
    pub fn take(&mut self, id: u32) -> Option<u32> {
        let place = self.places.remove(&id)?;
        let _ = self.map.store(id, 0);
        self.free.insert(place);
        Some(place)
    }

    /// Those with a place.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.places.keys().copied()
    }
}

/// The rows of VIPs.
pub struct FigureVips {
    map: PinnedHash<Address, u32>,
    known: BTreeMap<Address, u32>,
}

impl FigureVips {
    /// Opens the map in the state directory, which is empty.
    pub fn open(state: &Path) -> io::Result<Self> {
        let map = PinnedHash::open(&state.join(maps::FIGURE_VIPS))?;
        Ok(Self { map, known: BTreeMap::new() })
    }

    /// Notes the row of a VIP. Where there is no room, it counts among all others.
    pub fn set(&mut self, vip: Address, row: u32) {
        if self.known.get(&vip) != Some(&row) && self.map.set(&vip, row).is_ok() {
            self.known.insert(vip, row);
        }
    }

    /// Forgets a VIP.
    pub fn remove(&mut self, vip: &Address) {
        if self.known.remove(vip).is_some() {
            let _ = self.map.remove(vip);
        }
    }

    /// Forgets the VIPs of a row.
    pub fn remove_of(&mut self, row: u32) {
        let vips = self.known.iter().filter(|(_, of)| **of == row);
        for vip in vips.map(|(vip, _)| *vip).collect::<Vec<_>>() {
            self.remove(&vip);
        }
    }
}
