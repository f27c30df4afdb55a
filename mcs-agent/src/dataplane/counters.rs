use std::{collections::BTreeMap, path::Path};

use aya::maps::{Map, MapData, MapError, PerCpuArray};
use mcs_common::{Counter, maps};

/// What the programs counted, summed over CPUs, by [`Counter::name`].
pub type Counts = BTreeMap<String, u64>;

/// Reads the counters pinned in the state directory.
pub fn read(state: &Path) -> Result<Counts, MapError> {
    let map = MapData::from_pin(state.join(maps::COUNTERS))?;
    let counters = PerCpuArray::<_, u64>::try_from(Map::PerCpuArray(map))?;
    Counter::ALL
        .iter()
        .map(|counter| {
            let per_cpu = counters.get(&(*counter as u32), 0)?;
            Ok((counter.name().to_owned(), per_cpu.iter().sum()))
        })
        .collect()
}
