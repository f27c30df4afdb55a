//! Compares the config maps with what the agent wrote there: other processes can write pinned maps too.

use bytemuck::Zeroable;
use mcs_common::{
    Address, AddressKinds, BackendState, FrontendKey, FrontendState, VipMode,
    maps::{self, Place},
    select::Tables as _,
};

use super::{MapContents, MapError, MapReader, NameMap, Step, shared::Pages};
use crate::core::model::Capacity;

/// An entry of a config map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Of a map of names.
    Name(NameMap, u32),
    /// Of `backends`, with the hint of its address.
    Backend(u32),
    /// Of `slots`.
    Slot(u32),
    /// Of `states`.
    State(u32),
    /// Of `frontends`.
    Frontend(FrontendKey),
    /// Of `vips`, with the hint of the address.
    Vip(Address),
}

/// The names of the maps that are compared.
pub fn audited_maps() -> impl Iterator<Item = &'static str> {
    maps::of(Place::Config).map(|map| map.name).chain([maps::HINTS])
}

/// What a comparison of all entries has found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Entries compared.
    pub entries: usize,
    /// Entries that differ. The agent may have written them since the comparison began.
    pub different: Vec<Entry>,
}

/// Compares all entries with `expected`. An entry comes before the entries that refer to it.
///
/// # Errors
///
/// A map cannot be read.
pub fn compare(
    expected: &MapContents,
    maps: &impl MapReader,
    capacity: Capacity,
) -> Result<Comparison, MapError> {
    let mut found = Comparison::default();
    let array = |entry: fn(u32) -> Entry, entries: u32| (0..entries).map(entry);
    let names = NameMap::ALL
        .into_iter()
        .flat_map(|map| (0..map.entries(capacity)).map(move |id| Entry::Name(map, id)));
    let mut arrays = names
        .chain(array(Entry::Backend, capacity.backend_entries()))
        .chain(array(Entry::Slot, capacity.slot_entries()))
        .chain(array(Entry::State, capacity.state_entries()));
    arrays.try_for_each(|entry| found.add(entry, expected, maps))?;
    let keys = maps.frontends()?.into_iter().filter(|key| expected.frontend(key).is_none());
    for key in expected.frontends.keys().copied().chain(keys) {
        found.add(Entry::Frontend(key), expected, maps)?;
    }
    let vips = maps.vips()?.into_iter().filter(|vip| expected.vip(vip).is_none());
    for vip in expected.vips.keys().copied().chain(vips) {
        found.add(Entry::Vip(vip), expected, maps)?;
    }
    Ok(found)
}

impl Comparison {
    fn add(
        &mut self,
        entry: Entry,
        expected: &MapContents,
        maps: &impl MapReader,
    ) -> Result<(), MapError> {
        self.entries += 1;
        if !entry.repairs(expected, maps)?.is_empty() {
            self.different.push(entry);
        }
        Ok(())
    }
}

impl Entry {
    /// The writes, in order, that give a map the expected entry; none if the map has it.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn repairs(
        self,
        expected: &MapContents,
        maps: &impl MapReader,
    ) -> Result<Vec<Step>, MapError> {
        Ok(match self {
            Self::Name(map, id) => different(&expected.names[map as usize], id, maps.name(map, id))
                .map(|record| vec![Step::WriteName { map, id, record: record.into() }])
                .unwrap_or_default(),
            Self::Backend(id) => different(&expected.backends, id, maps.backend(id)).map_or_else(
                || hint_of_backend(expected, id, maps),
                |backend| vec![Step::WriteBackend { id, backend }],
            ),
            Self::Slot(slot) => different(&expected.slots, slot, maps.slot(slot))
                .map(|id| vec![Step::WriteSlots { block: slot, ids: vec![id] }])
                .unwrap_or_default(),
            Self::State(index) => different(&expected.states, index, maps.state(index))
                .map(|state| write_live_state(index, state))
                .unwrap_or_default(),
            Self::Frontend(key) => match (expected.frontend(&key), maps.index_of(&key)?) {
                (expected, found) if expected == found => vec![],
                (Some(index), None) => vec![Step::InsertFrontend { key, index }],
                (Some(index), Some(_)) => {
                    vec![Step::DeleteFrontend(key), Step::InsertFrontend { key, index }]
                }
                (None, _) => vec![Step::DeleteFrontend(key)],
            },
            Self::Vip(vip) => match (expected.vip(&vip), maps.vip_mode(&vip)?) {
                (Some(mode), Some(found)) if found == mode => hint(vip, AddressKinds::VIP, maps),
                (None, None) => vec![],
                (Some(VipMode::SERVED), None) => vec![Step::InsertVip(vip)],
                (Some(mode), _) => vec![Step::SetVipMode { vip, mode }],
                (None, Some(_)) => vec![Step::DeleteVip(vip)],
            },
        })
    }
}

/// The expected entry of an array, if the map has another one.
fn different<T: Zeroable + PartialEq + Copy>(
    expected: &Pages<T>,
    index: u32,
    found: Option<T>,
) -> Option<T> {
    let expected = expected.get(index as usize).copied().unwrap_or(T::zeroed());
    (found.unwrap_or(T::zeroed()) != expected).then_some(expected)
}

fn hint_of_backend(expected: &MapContents, id: u32, maps: &impl MapReader) -> Vec<Step> {
    let backend = expected.backends.get(id as usize);
    let backend = backend.filter(|backend| backend.state != BackendState::FREE);
    backend.map_or_else(Vec::new, |backend| hint(backend.addr, AddressKinds::BACKEND, maps))
}

/// Sets a hint that is missing. A needless hint only costs look-ups, and a former backend may need it.
fn hint(address: Address, hint: AddressKinds, maps: &impl MapReader) -> Vec<Step> {
    let is_there = maps.kinds_of(&address).includes(hint);
    if is_there { vec![] } else { vec![Step::RepairHint { address, hint }] }
}

/// Restores a state while programs may read it: the extent goes last.
fn write_live_state(index: u32, state: FrontendState) -> Vec<Step> {
    let flip = Step::Flip { index, extent: state.extent };
    vec![Step::WriteState { index, state: state.into() }, flip]
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::core::tables::{
        Maps as _,
        contents::frontend_key,
        fixtures::{address, desired, frontend, id, maps},
        testing::MemoryMaps,
    };

    const CAPACITY: Capacity =
        Capacity { vips: 8, frontends: 8, endpoints: 16, clusters: 2, imports: 8 };

    fn world() -> (MemoryMaps, MapContents) {
        let wanted = desired([
            (
                id("10.0.0.1", 80),
                frontend("web", &[("10.1.0.1:80", "east"), ("10.1.0.2:80", "west")]),
            ),
            (id("10.0.0.1", 81), frontend("shop", &[("10.1.0.3:80", "east")])),
            (id("fd00::1", 80), frontend("shop", &[])),
        ]);
        let (maps, realized) = maps(CAPACITY, &[&wanted]);
        (maps, realized.contents().clone())
    }

    /// Compares, and writes what differs. Returns how many entries were compared, and the repairs of each that differs.
    fn pass(maps: &mut MemoryMaps, expected: &MapContents) -> (usize, Vec<Vec<Step>>) {
        let Comparison { entries, different } = compare(expected, maps, CAPACITY).unwrap();
        let repair = |entry: Entry| {
            let repairs = entry.repairs(expected, maps).unwrap();
            for step in &repairs {
                maps.write(step).expect("no fault");
            }
            repairs
        };
        (entries, different.into_iter().map(repair).collect())
    }

    type Harm = fn(&mut MapContents, FrontendKey);

    const HARMS: [Harm; 12] = [
        |dump, _| dump.names[NameMap::Services as usize][1] = Zeroable::zeroed(),
        |dump, _| dump.names[NameMap::Clusters as usize][1] = Zeroable::zeroed(),
        |dump, _| dump.backends[1].port = 81,
        |dump, _| dump.backends[2].generation += 1,
        |dump, _| {
            for id in [18, 19] {
                *dump.backends.entry(id) = dump.backends[1];
            }
        },
        |dump, _| dump.slots[1] = 3,
        |dump, _| dump.states[1].extent.count = 1,
        |dump, _| dump.states[1].affinity_seconds = 60,
        |dump, key| _ = dump.frontends.remove(&key),
        |dump, key| _ = dump.frontends.insert(key, 2),
        |dump, key| {
            dump.frontends.insert(FrontendKey { port: 99, ..key }, 1);
        },
        |dump, key| _ = dump.vips.remove(&key.vip),
    ];

    #[test]
    fn what_differs_is_found_and_written_back() {
        let key = frontend_key(&id("10.0.0.1", 80));
        for (number, harm) in HARMS.into_iter().enumerate() {
            let (maps, expected) = world();
            let mut dump = maps.contents().clone();
            harm(&mut dump, key);
            let mut maps = MemoryMaps::with_contents(CAPACITY, dump);
            let (_, repairs) = pass(&mut maps, &expected);
            assert_eq!(repairs.len(), if number == 4 { 2 } else { 1 }, "{number}: {repairs:?}");
            assert_eq!(pass(&mut maps, &expected).1, Vec::<Vec<_>>::new(), "{number}");
        }
    }

    #[test]
    fn missing_hints_are_set_again() {
        let (maps, expected) = world();
        let mut maps = maps.without_hints();
        let repairs: Vec<_> = pass(&mut maps, &expected).1.into_iter().flatten().collect();
        assert!(repairs.iter().all(|step| step.map() == Some("hints")), "{repairs:?}");
        assert!(repairs.len() >= 3, "two VIPs and a backend: {repairs:?}");
        // Sockets may have backends that no map has any more.
        let former = MapReader::kinds_of(&maps, &address("10.1.9.9").into());
        assert!(former.may_be_backend());
        assert!(pass(&mut maps, &expected).1.is_empty());
    }

    #[test]
    fn a_foreign_vip_is_removed() {
        let (mut maps, expected) = world();
        let foreign = Step::InsertVip(address("10.0.0.9").into());
        maps.write(&foreign).unwrap();
        let (_, repairs) = pass(&mut maps, &expected);
        assert_eq!(repairs, [[Step::DeleteVip(address("10.0.0.9").into())]]);
    }

    #[test]
    fn what_is_right_is_left_alone() {
        let (mut maps, expected) = world();
        let (entries, repairs) = pass(&mut maps, &expected);
        assert!(repairs.is_empty(), "{repairs:?}");
        let names = NameMap::ALL.map(|map| map.entries(CAPACITY));
        let arrays =
            [CAPACITY.backend_entries(), CAPACITY.slot_entries(), CAPACITY.state_entries()];
        let arrays: u32 = names.iter().chain(&arrays).sum();
        assert_eq!(entries, arrays as usize + expected.vips.len() + expected.frontends.len());
    }
}
