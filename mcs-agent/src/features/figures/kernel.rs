//! The figures of imports that the programs count, and the rows of VIPs.

use std::{collections::BTreeMap, io, path::Path};

use aya::{
    maps::{MapData, PerCpuArray, PerCpuValues},
    util::nr_cpus,
};
use bytemuck::Zeroable as _;
use mcs_common::{Address, FigureRow, maps};

use crate::core::kernel::{
    bpf::{PinnedHash, into_io},
    dataplane::counters::open,
};

/// The pinned figures.
pub(super) struct FigureMap(PerCpuArray<MapData, FigureRow>);

impl FigureMap {
    /// Opens the map in the state directory.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        open(state, maps::FIGURES).map(Self)
    }

    /// The figures of an import, summed over CPUs.
    pub(super) fn row(&self, index: u32) -> io::Result<FigureRow> {
        let mut sum = FigureRow { counts: Default::default() };
        for row in self.0.get(&index, 0).map_err(into_io)?.iter() {
            for (sum, count) in sum.counts.iter_mut().zip(row.counts) {
                *sum = sum.wrapping_add(count);
            }
        }
        Ok(sum)
    }

    /// Sets the figures of a row to zero, in which no program counts.
    pub(super) fn clear(&mut self, index: u32) -> io::Result<()> {
        let zeros = vec![FigureRow::zeroed(); nr_cpus().map_err(|(_, error)| error)?];
        self.0.set(index, PerCpuValues::try_from(zeros)?, 0).map_err(into_io)
    }
}

/// The rows of VIPs.
pub(super) struct FigureVips {
    map: PinnedHash<Address, u32>,
    known: BTreeMap<Address, u32>,
}

impl FigureVips {
    /// Opens the map in the state directory, which is empty.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let map = PinnedHash::open(&state.join(maps::FIGURE_VIPS))?;
        Ok(Self { map, known: BTreeMap::new() })
    }

    /// Sets the row of a VIP. If the map has no room, the VIP counts among all others.
    pub(super) fn set(&mut self, vip: Address, row: u32) {
        if self.known.get(&vip) != Some(&row) && self.map.set(&vip, row).is_ok() {
            self.known.insert(vip, row);
        }
    }

    /// Forgets a VIP.
    pub(super) fn remove(&mut self, vip: &Address) {
        if self.known.remove(vip).is_some() {
            let _ = self.map.remove(vip);
        }
    }

    /// Forgets the VIPs of a row.
    pub(super) fn remove_of(&mut self, row: u32) {
        let vips = self.known.iter().filter(|(_, of)| **of == row);
        for vip in vips.map(|(vip, _)| *vip).collect::<Vec<_>>() {
            self.remove(&vip);
        }
    }
}
