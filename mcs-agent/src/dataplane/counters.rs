use std::{collections::BTreeMap, path::Path};

use aya::maps::{Map, MapData, MapError, PerCpuArray};
use mcs_common::{Counter, maps};

/// What the programs counted, summed over CPUs, by [`Counter::name`].
pub type Counts = BTreeMap<String, u64>;

/// Reads the counters pinned in the state directory.
pub fn read(state: &Path) -> Result<Counts, MapError> {
    let map = open(state)?;
    Counter::ALL
        .iter()
        .map(|counter| Ok((counter.name().to_owned(), sum(&map, *counter)?)))
        .collect()
}

/// Reads one of them.
pub(super) fn read_one(state: &Path, counter: Counter) -> Result<u64, MapError> {
    sum(&open(state)?, counter)
}

fn open(state: &Path) -> Result<PerCpuArray<MapData, u64>, MapError> {
    let map = MapData::from_pin(state.join(maps::COUNTERS))?;
    PerCpuArray::try_from(Map::PerCpuArray(map))
}

fn sum(map: &PerCpuArray<MapData, u64>, counter: Counter) -> Result<u64, MapError> {
    let values = map.get(&(counter as u32), 0)?;
    // Programs wrap around too, and the map may hold anything.
    Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
}
