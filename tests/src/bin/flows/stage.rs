//! A load takes nothing from the programs that run, whichever pinned map has another shape.

use aya::maps::MapInfo;
use mcs_common::maps::{self, Map, Place};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a load leaves all that is pinned, whichever map has another shape", loads);
    suite.case("a commit that is cut short anywhere", is_cut_short);
}

const FLOWS: u32 = 1024;
/// Maps that say nothing without each other.
const TOGETHER: [[&str; 2]; 2] =
    [[maps::SOCKET_TAGS, maps::SOCKET_CONNS], [maps::FLOWS, maps::FLOW_EVICTIONS]];

fn pin(pins: &Pins, map: &Map) -> PathBuf {
    let directory = if map.place == Place::State { pins.state() } else { pins.root().to_owned() };
    directory.join(map.name)
}

/// The maps that are not in a directory of config maps, by pin.
fn pinned(pins: &Pins) -> Result<BTreeMap<PathBuf, u32>> {
    let mut found = BTreeMap::new();
    for directory in [pins.state(), pins.root().to_owned()] {
        for file in fs::read_dir(directory)? {
            let path = file?.path();
            if path.is_file() {
                found.insert(path.clone(), MapInfo::from_pin(&path)?.id());
            }
        }
    }
    Ok(found)
}

fn has_staged(pins: &BTreeMap<PathBuf, u32>) -> bool {
    pins.keys().any(|pin| pin.to_string_lossy().contains("-new"))
}

/// Each time the load is one of a start that is killed.
fn loads(world: &mut World) -> Result {
    let maps = Maps::create(world, "staged", FLOWS)?;
    let pins = maps.pins();
    for map in maps::ALL.iter().filter(|map| map.place != Place::Config) {
        let odd = if map.name == maps::COUNTERS { maps::FLOWS_USED } else { maps::COUNTERS };
        fs::remove_file(pin(&pins, map))?;
        fs::hard_link(pins.state().join(odd), pin(&pins, map))?;
        let mut before = pinned(&pins)?;
        ensure!(!has_staged(&before), "before {}: {before:?}", map.name);
        let mut first = None;
        // The last one of another shape than the others, and of one more map.
        for flows in [FLOWS, FLOWS, 4 * FLOWS] {
            drop(maps.load(flows)?);
            let now = pinned(&pins)?;
            for (path, id) in &before {
                ensure!(
                    now.get(path) == Some(id),
                    "{}: a load has taken {}",
                    map.name,
                    path.display()
                );
            }
            if map.name != maps::HINTS {
                before = now.clone();
            }
            first.get_or_insert(now);
        }
        let made = first.context("no load")?;
        maps.load(FLOWS)?.commit()?;
        let after = pinned(&pins)?;
        ensure!(!has_staged(&after), "after {}: {after:?}", map.name);
        let own = pin(&pins, map);
        let staged = own.with_file_name(format!("{}-new1", map.name));
        let is_same = map.name == maps::HINTS || after.get(&own) == made.get(&staged);
        ensure!(is_same, "{}: {after:?} after {made:?}", map.name);
    }
    Ok(())
}

/// The next start goes on with what the programs use, and what belongs together is of one load.
fn is_cut_short(world: &mut World) -> Result {
    const OTHER: (u32, u32) = (4 * FLOWS, SOCKET_SLOT_BITS - 2);
    let mut settled = 0;
    loop {
        let maps = Maps::create(world, &format!("cut-{settled}"), FLOWS)?;
        let pins = maps.pins();
        let before = pinned(&pins)?;
        drop(load(&pins, OTHER.0, OTHER.1)?);
        let now = pinned(&pins)?;
        let staged: Vec<_> = maps::ALL
            .iter()
            .map(|map| pin(&pins, map))
            .filter_map(|own| {
                let beside = own.with_file_name(format!("{}-new1", own.file_name()?.to_str()?));
                Some((own, *now.get(&beside)?, beside))
            })
            .collect();
        ensure!(staged.len() == 4, "two tables of two maps: {staged:?}");
        for (own, _, beside) in &staged[..settled] {
            fs::remove_file(own)?;
            fs::hard_link(beside, own)?;
        }
        if settled % 2 == 0 {
            load(&pins, OTHER.0, OTHER.1)?.commit()?;
            let after = pinned(&pins)?;
            ensure!(!has_staged(&after), "{settled} settled: {after:?}");
            for (own, id, _) in &staged {
                ensure!(after.get(own) == Some(id), "{settled} settled: {} is new", own.display());
            }
        } else {
            load(&pins, FLOWS, SOCKET_SLOT_BITS)?.commit()?;
            let after = pinned(&pins)?;
            // 0: the load before; 1: the one that was cut short; none: this one.
            let load_of = |name| {
                let id = after.get(&pins.state().join(name));
                [&before, &now].iter().position(|pinned| pinned.values().any(|one| Some(one) == id))
            };
            for [one, other] in TOGETHER {
                let loads = [load_of(one), load_of(other)];
                ensure!(
                    loads[0] == loads[1],
                    "{settled} settled: {one} and {other} are of {loads:?}"
                );
            }
        }
        settled += 1;
        if settled > staged.len() {
            return Ok(());
        }
    }
}
