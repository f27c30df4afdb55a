//! Compares the config maps with what the agent wrote there, a slice at a time: other processes can
//! write pinned maps too.

use std::{mem, ops::Bound};

use bytemuck::Zeroable;
use mcs_common::{
    Address, BackendState, FrontendKey, FrontendState, Hint, VipMode, select::Tables as _,
};

use super::{MapContents, MapError, MapReader, Step, pages::Pages};
use crate::model::Capacity;

/// A part of a pass. An entry comes before those that refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Part {
    #[default]
    Services,
    Clusters,
    Backends,
    Slots,
    States,
    /// The frontends that the map should have.
    Frontends,
    /// The frontends that the map has.
    ForeignFrontends,
    /// The VIPs that the map should have.
    Vips,
    /// The VIPs that the map has.
    ForeignVips,
}

impl Part {
    /// The arrays, in the order of a pass.
    const ARRAYS: [Self; 5] =
        [Self::Services, Self::Clusters, Self::Backends, Self::Slots, Self::States];

    /// The next part; `None` at the end of the pass.
    const fn next(self) -> Option<Self> {
        Some(match self {
            Self::Services => Self::Clusters,
            Self::Clusters => Self::Backends,
            Self::Backends => Self::Slots,
            Self::Slots => Self::States,
            Self::States => Self::Frontends,
            Self::Frontends => Self::ForeignFrontends,
            Self::ForeignFrontends => Self::Vips,
            Self::Vips => Self::ForeignVips,
            Self::ForeignVips => return None,
        })
    }

    /// The length of the array; 0 for a part of a hash map.
    const fn entries(self, capacity: Capacity) -> u32 {
        match self {
            Self::Services => capacity.service_entries(),
            Self::Clusters => capacity.cluster_entries(),
            Self::Backends => capacity.backend_entries(),
            Self::Slots => capacity.slot_entries(),
            Self::States => capacity.state_entries(),
            _ => 0,
        }
    }
}

/// The position of the audit in its current pass.
#[derive(Debug)]
pub struct Audit<W> {
    part: Part,
    /// The next entry of an array.
    next: u32,
    /// The last VIP or frontend that the audit looked up.
    last_vip: Option<Address>,
    last_frontend: Option<FrontendKey>,
    walk: W,
}

/// The outcome of one slice of the audit.
#[derive(Debug, Default)]
pub struct AuditSlice {
    /// Entries compared.
    pub entries: usize,
    /// Writes that restore what the maps should hold, in order.
    pub repairs: Vec<Step>,
    /// Whether the pass ends with this slice.
    pub ends: bool,
}

impl<W: Default> Default for Audit<W> {
    fn default() -> Self {
        Self {
            part: Part::default(),
            next: 0,
            last_vip: None,
            last_frontend: None,
            walk: W::default(),
        }
    }
}

/// How many entries a pass compares.
pub fn pass_entries(expected: &MapContents, capacity: Capacity) -> usize {
    let arrays: u64 = Part::ARRAYS.iter().map(|part| u64::from(part.entries(capacity))).sum();
    // The audit looks up every expected entry of a hash map, and walks over every present one.
    2 * (expected.vips.len() + expected.frontends.len())
        + usize::try_from(arrays).unwrap_or(usize::MAX / 2)
}

impl<W: Default> Audit<W> {
    /// Compares about `budget` entries with `expected`.
    ///
    /// The agent may write the maps between two slices, as long as it keeps `expected` up to date: each
    /// slice compares with what is expected then.
    ///
    /// # Errors
    ///
    /// A map cannot be read. The next slice compares the same entries again.
    pub fn next_slice<M: MapReader<Walk = W>>(
        &mut self,
        expected: &MapContents,
        maps: &M,
        capacity: Capacity,
        budget: usize,
    ) -> Result<AuditSlice, MapError> {
        let mut slice = AuditSlice::default();
        while slice.entries < budget && !slice.ends {
            let room = budget - slice.entries;
            let is_through = match self.part {
                Part::Frontends => self.look_up_frontends(expected, maps, room, &mut slice)?,
                Part::Vips => self.look_up_vips(expected, maps, room, &mut slice)?,
                Part::ForeignFrontends => {
                    let found = maps.next_frontends(&mut self.walk)?;
                    let is_foreign = |key: &FrontendKey| expected.frontend(key).is_none();
                    slice.delete_foreign(found, is_foreign, Step::DeleteFrontend)
                }
                Part::ForeignVips => {
                    let found = maps.next_vips(&mut self.walk)?;
                    slice.delete_foreign(found, |vip| expected.vip(vip).is_none(), Step::DeleteVip)
                }
                array => self.compare_array(array, expected, maps, capacity, room, &mut slice),
            };
            if is_through {
                let next = self.part.next();
                slice.ends = next.is_none();
                *self = Self { part: next.unwrap_or_default(), ..Self::default() };
            }
        }
        Ok(slice)
    }

    /// Compares the next entries of an array. Returns whether they are the last.
    fn compare_array(
        &mut self,
        array: Part,
        expected: &MapContents,
        maps: &impl MapReader,
        capacity: Capacity,
        room: usize,
        slice: &mut AuditSlice,
    ) -> bool {
        let entries = array.entries(capacity);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let end = self.next.saturating_add(room).min(entries);
        for index in mem::replace(&mut self.next, end)..end {
            slice.entries += 1;
            slice.compare_entry(array, index, expected, maps);
        }
        end == entries
    }

    /// Looks up the next frontends that the map should have. Returns whether they are the last.
    fn look_up_frontends(
        &mut self,
        expected: &MapContents,
        maps: &impl MapReader,
        room: usize,
        slice: &mut AuditSlice,
    ) -> Result<bool, MapError> {
        let from = self.last_frontend.map_or(Bound::Unbounded, Bound::Excluded);
        let before = slice.entries;
        for (&key, &index) in expected.frontends.range((from, Bound::Unbounded)).take(room) {
            match maps.index_of(&key)? {
                Some(found) if found == index => {}
                Some(_) => slice
                    .repairs
                    .extend([Step::DeleteFrontend(key), Step::InsertFrontend { key, index }]),
                None => slice.repairs.push(Step::InsertFrontend { key, index }),
            }
            self.last_frontend = Some(key);
            slice.entries += 1;
        }
        Ok(slice.entries - before < room)
    }

    /// Looks up the next VIPs that the map should have. Returns whether they are the last.
    fn look_up_vips(
        &mut self,
        expected: &MapContents,
        maps: &impl MapReader,
        room: usize,
        slice: &mut AuditSlice,
    ) -> Result<bool, MapError> {
        let from = self.last_vip.map_or(Bound::Unbounded, Bound::Excluded);
        let before = slice.entries;
        for (&vip, &mode) in expected.vips.range((from, Bound::Unbounded)).take(room) {
            match maps.vip_mode(&vip)? {
                Some(found) if found == mode => slice.compare_hint(vip, Hint::VIP, maps),
                None if mode == VipMode::SERVED => slice.repairs.push(Step::InsertVip(vip)),
                _ => slice.repairs.push(Step::SetVipMode { vip, mode }),
            }
            self.last_vip = Some(vip);
            slice.entries += 1;
        }
        Ok(slice.entries - before < room)
    }
}

impl AuditSlice {
    /// Compares one entry of an array.
    fn compare_entry(
        &mut self,
        array: Part,
        index: u32,
        expected: &MapContents,
        maps: &impl MapReader,
    ) {
        let repairs = &mut self.repairs;
        match array {
            Part::Services => repairs.extend(
                expected_if_different(&expected.services, index, maps.service(index))
                    .map(|record| Step::WriteService { id: index, record: record.into() }),
            ),
            Part::Clusters => repairs.extend(
                expected_if_different(&expected.clusters, index, maps.cluster(index))
                    .map(|record| Step::WriteCluster { id: index, record: record.into() }),
            ),
            Part::Backends => {
                match expected_if_different(&expected.backends, index, maps.backend(index)) {
                    Some(backend) => repairs.push(Step::WriteBackend { id: index, backend }),
                    None => self.compare_hint_of_backend(index, expected, maps),
                }
            }
            Part::Slots => repairs.extend(
                expected_if_different(&expected.slots, index, maps.slot(index))
                    .map(|id| Step::WriteSlots { block: index, ids: vec![id] }),
            ),
            Part::States => repairs.extend(
                expected_if_different(&expected.states, index, maps.state(index))
                    .into_iter()
                    .flat_map(|state| write_live_state(index, state)),
            ),
            _ => {}
        }
    }

    /// Looks for the hint of an address. Hints that should not be there cost look-ups, and may be those of former
    /// backends.
    fn compare_hint(&mut self, address: Address, hint: Hint, maps: &impl MapReader) {
        if !maps.hint(&address).includes(hint) {
            self.repairs.push(Step::RepairHint { address, hint });
        }
    }

    fn compare_hint_of_backend(&mut self, id: u32, expected: &MapContents, maps: &impl MapReader) {
        let backend = expected.backends.get(id as usize);
        if let Some(backend) = backend.filter(|backend| backend.state != BackendState::FREE) {
            self.compare_hint(backend.addr, Hint::BACKEND, maps);
        }
    }

    /// Deletes the foreign ones of the entries that a walk came to. Returns whether it is at its end.
    fn delete_foreign<K>(
        &mut self,
        found: Option<Vec<K>>,
        is_foreign: impl Fn(&K) -> bool,
        delete: fn(K) -> Step,
    ) -> bool {
        let Some(found) = found else { return true };
        self.entries += found.len();
        self.repairs.extend(found.into_iter().filter(is_foreign).map(delete));
        false
    }
}

/// The expected entry of an array, if the map has another one.
fn expected_if_different<T: Zeroable + PartialEq + Copy>(
    expected: &Pages<T>,
    index: u32,
    found: Option<T>,
) -> Option<T> {
    let expected = expected.get(index as usize).copied().unwrap_or(T::zeroed());
    (found.unwrap_or(T::zeroed()) != expected).then_some(expected)
}

/// Restores a state that a program may read meanwhile: the extent goes last.
fn write_live_state(index: u32, state: FrontendState) -> [Step; 2] {
    [Step::WriteState { index, state: state.into() }, Step::Flip { index, extent: state.extent }]
}

/// One step for each entry that these repairs restore: a pair of steps on one entry counts once.
pub fn repaired_entries(steps: &[Step]) -> impl Iterator<Item = &Step> {
    let mut before = None;
    steps.iter().filter(move |step| {
        let place = place(step);
        mem::replace(&mut before, place) != place || place.is_none()
    })
}

/// The frontend or state that a step of a pair writes.
fn place(step: &Step) -> Option<(Option<u32>, Option<FrontendKey>)> {
    match *step {
        Step::WriteState { index, .. } | Step::Flip { index, .. } => Some((Some(index), None)),
        Step::DeleteFrontend(key) | Step::InsertFrontend { key, .. } => Some((None, Some(key))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::reconcile::{
        Maps as _,
        convert::frontend_key,
        fixtures::{address, desired, frontend, id, maps},
        testing::MemoryMaps,
    };

    const CAPACITY: Capacity = Capacity { frontends: 8, endpoints: 16, clusters: 2, imports: 8 };

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

    /// A whole pass, in slices of this size, each of which is written.
    fn pass(maps: &mut MemoryMaps, tables: &MapContents, budget: usize) -> (usize, Vec<Step>) {
        let (mut audit, mut entries, mut repairs) = (Audit::default(), 0, Vec::new());
        loop {
            let slice = audit.next_slice(tables, &*maps, CAPACITY, budget).expect("in memory");
            assert!(slice.entries <= budget + 1 || slice.ends, "{slice:?}");
            slice.repairs.iter().for_each(|step| maps.write(step).expect("no fault"));
            entries += slice.entries;
            repairs.extend(slice.repairs);
            if slice.ends {
                return (entries, repairs);
            }
        }
    }

    type Harm = fn(&mut MapContents, FrontendKey);

    const HARMS: [Harm; 12] = [
        |dump, _| dump.services[1] = Zeroable::zeroed(),
        |dump, _| dump.clusters[1] = Zeroable::zeroed(),
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
        |dump, key| _ = Arc::make_mut(&mut dump.frontends).remove(&key),
        |dump, key| _ = Arc::make_mut(&mut dump.frontends).insert(key, 2),
        |dump, key| {
            Arc::make_mut(&mut dump.frontends).insert(FrontendKey { port: 99, ..key }, 1);
        },
        |dump, key| _ = Arc::make_mut(&mut dump.vips).remove(&key.vip),
    ];

    #[test]
    fn what_differs_is_found_and_written_back_whatever_the_slice() {
        let key = frontend_key(&id("10.0.0.1", 80));
        for (number, harm) in HARMS.into_iter().enumerate() {
            for budget in [1, 7, 1000] {
                let (maps, tables) = world();
                let mut dump = maps.contents().clone();
                harm(&mut dump, key);
                let mut maps = MemoryMaps::with_contents(CAPACITY, dump);
                let (entries, repairs) = pass(&mut maps, &tables, budget);
                assert_eq!(
                    repaired_entries(&repairs).count() == 1,
                    number != 4,
                    "{number}: {repairs:?}"
                );
                assert!(entries >= pass_entries(&tables, CAPACITY) - 1, "{entries}");
                let (_, rest) = pass(&mut maps, &tables, budget);
                assert_eq!(rest, [], "{number}");
            }
        }
    }

    #[test]
    fn missing_hints_are_set_again() {
        let (maps, tables) = world();
        let mut maps = maps.without_hints();
        let (_, repairs) = pass(&mut maps, &tables, 3);
        assert!(repairs.iter().all(|step| step.map() == Some("hints")), "{repairs:?}");
        assert!(repairs.len() >= 3, "two VIPs and a backend: {repairs:?}");
        // Sockets may have backends that no map has any more.
        let former = MapReader::hint(&maps, &address("10.1.9.9").into());
        assert!(former.may_be_backend());
        assert_eq!(pass(&mut maps, &tables, 3).1, []);
    }

    #[test]
    fn a_foreign_vip_is_removed() {
        let (mut maps, tables) = world();
        let foreign = Step::InsertVip(address("10.0.0.9").into());
        maps.write(&foreign).unwrap();
        let (_, repairs) = pass(&mut maps, &tables, 3);
        assert_eq!(repairs, [Step::DeleteVip(address("10.0.0.9").into())]);
    }

    #[test]
    fn what_is_right_is_left_alone() {
        let (mut maps, tables) = world();
        let (entries, repairs) = pass(&mut maps, &tables, 5);
        assert_eq!((entries, repairs), (pass_entries(&tables, CAPACITY), vec![]));
    }
}
