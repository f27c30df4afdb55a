//! What the programs have counted.

use std::{collections::BTreeMap, io, path::Path};

use aya::maps::{Map, MapData, PerCpuArray};
use mcs_common::{Counter, maps};

use crate::bpf::into_io;

/// What the programs counted, summed over CPUs, by [`Counter::name`].
pub type Counts = BTreeMap<String, u64>;

/// Reads the counters pinned in the state directory.
pub fn read(state: &Path) -> io::Result<Counts> {
    let map = open(state)?;
    Counter::ALL
        .iter()
        .map(|counter| Ok((counter.name().to_owned(), sum(&map, *counter)?)))
        .collect()
}

/// Reads one counter.
pub(super) fn read_one(state: &Path, counter: Counter) -> io::Result<u64> {
    sum(&open(state)?, counter)
}

fn open(state: &Path) -> io::Result<PerCpuArray<MapData, u64>> {
    let map = MapData::from_pin(state.join(maps::COUNTERS)).map_err(into_io)?;
    PerCpuArray::try_from(Map::PerCpuArray(map)).map_err(into_io)
}

fn sum(map: &PerCpuArray<MapData, u64>, counter: Counter) -> io::Result<u64> {
    let values = map.get(&(counter as u32), 0).map_err(into_io)?;
    // Programs wrap around too, and the map may hold anything.
    Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
}
