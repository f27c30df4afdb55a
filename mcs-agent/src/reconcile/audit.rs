//! A comparison of what the maps hold with what they should, a slice at a time, over and over: other
//! programs can write pinned maps too.

use std::{
    fmt::Debug,
    mem,
    ops::{Bound, Range},
};

use bytemuck::Zeroable;
use mcs_common::{
    Address, BackendRecord, ClusterRecord, FrontendKey, FrontendState, ServiceRecord,
    select::Tables,
};

use super::{Dump, MapError, Step, pages::Pages};
use crate::model::Capacity;

/// The config maps, as they are read entry by entry. An array reads as zeros past what was ever
/// written.
pub trait Contents {
    /// Where a walk through a hash map is.
    type Walk: Default + Debug;

    /// Whether `vips` has an entry.
    fn has_vip(&self, vip: &Address) -> Result<bool, MapError>;
    /// The index that `frontends` has.
    fn index_of(&self, key: &FrontendKey) -> Result<Option<u32>, MapError>;
    /// The next entries of `vips`, at least one; `None` at the end.
    fn next_vips(&self, walk: &mut Self::Walk) -> Result<Option<Vec<Address>>, MapError>;
    /// The next entries of `frontends`, at least one; `None` at the end.
    fn next_frontends(&self, walk: &mut Self::Walk) -> Result<Option<Vec<FrontendKey>>, MapError>;
    /// An entry of `states`.
    fn state_at(&self, index: u32) -> FrontendState;
    /// An entry of `slots`.
    fn slot_at(&self, index: u32) -> u32;
    /// An entry of `backends`.
    fn backend_at(&self, id: u32) -> BackendRecord;
    /// An entry of `services`.
    fn service_at(&self, id: u32) -> ServiceRecord;
    /// An entry of `clusters`.
    fn cluster_at(&self, id: u32) -> ClusterRecord;
}

/// A part of a pass. What others refer to comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Part {
    #[default]
    Services,
    Clusters,
    Backends,
    Slots,
    States,
    /// Those that should be there.
    Frontends,
    /// Those that are there.
    ForeignFrontends,
    /// Those that should be there.
    Vips,
    /// Those that are there.
    ForeignVips,
}

/// How far a pass has come.
#[derive(Debug)]
pub struct Audit<W> {
    part: Part,
    /// The next entry of an array.
    next: u32,
    /// The last VIP or frontend that was looked for.
    last_vip: Option<Address>,
    last_frontend: Option<FrontendKey>,
    walk: W,
}

/// What a slice has come to.
#[derive(Debug, Default)]
pub struct Slice {
    /// Entries compared.
    pub entries: usize,
    /// Writes that make the maps hold what they should, in order.
    pub repairs: Vec<Step>,
    /// Whether the pass is through.
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

/// Entries that a whole pass compares.
pub fn pass_entries(tables: &Dump, capacity: Capacity) -> usize {
    let arrays = [
        capacity.service_entries(),
        capacity.cluster_entries(),
        capacity.backend_entries(),
        capacity.slot_entries(),
        capacity.state_entries(),
    ];
    let arrays: u64 = arrays.into_iter().map(u64::from).sum();
    // Each entry of a hash map is looked for, and looked at.
    2 * (tables.vips.len() + tables.frontends.len())
        + usize::try_from(arrays).unwrap_or(usize::MAX / 2)
}

impl<W: Default + Debug> Audit<W> {
    /// Compares some `budget` entries with `tables`, which say what should be there.
    ///
    /// A map that is written meanwhile, by whoever keeps `tables` up with it, is compared as it is
    /// then: nothing that is right is ever changed.
    ///
    /// # Errors
    ///
    /// A map that cannot be read. The same entries are due again.
    pub fn slice<C: Contents<Walk = W>>(
        &mut self,
        tables: &Dump,
        maps: &C,
        capacity: Capacity,
        budget: usize,
    ) -> Result<Slice, MapError> {
        let mut slice = Slice::default();
        while slice.entries < budget && !slice.ends {
            let room = budget - slice.entries;
            match self.part {
                Part::Services => {
                    let range = self.range(capacity.service_entries(), room, Part::Clusters);
                    compare(
                        range,
                        &tables.services,
                        |id| maps.service_at(id),
                        &mut slice,
                        |id, record| [Step::WriteService { id, record: record.into() }],
                    );
                }
                Part::Clusters => {
                    let range = self.range(capacity.cluster_entries(), room, Part::Backends);
                    compare(
                        range,
                        &tables.clusters,
                        |id| maps.cluster_at(id),
                        &mut slice,
                        |id, record| [Step::WriteCluster { id, record: record.into() }],
                    );
                }
                Part::Backends => {
                    let range = self.range(capacity.backend_entries(), room, Part::Slots);
                    compare(
                        range,
                        &tables.backends,
                        |id| maps.backend_at(id),
                        &mut slice,
                        |id, backend| [Step::WriteBackend { id, backend }],
                    );
                }
                Part::Slots => {
                    let range = self.range(capacity.slot_entries(), room, Part::States);
                    compare(
                        range,
                        &tables.slots,
                        |slot| maps.slot_at(slot),
                        &mut slice,
                        |block, id| [Step::WriteSlots { block, ids: vec![id] }],
                    );
                }
                Part::States => {
                    let range = self.range(capacity.state_entries(), room, Part::Frontends);
                    compare(
                        range,
                        &tables.states,
                        |index| maps.state_at(index),
                        &mut slice,
                        |index, state| {
                            // The extent last, since a reader may be there.
                            [
                                Step::WriteState { index, state: state.into() },
                                Step::Flip { index, extent: state.extent },
                            ]
                        },
                    );
                }
                Part::Frontends => self.look_for_frontends(tables, maps, room, &mut slice)?,
                Part::Vips => self.look_for_vips(tables, maps, room, &mut slice)?,
                Part::ForeignFrontends => match maps.next_frontends(&mut self.walk)? {
                    Some(found) => {
                        slice.entries += found.len();
                        let foreign =
                            found.into_iter().filter(|key| tables.frontend(key).is_none());
                        slice.repairs.extend(foreign.map(Step::DeleteFrontend));
                    }
                    None => self.go_on_with(Part::Vips),
                },
                Part::ForeignVips => {
                    if let Some(found) = maps.next_vips(&mut self.walk)? {
                        slice.entries += found.len();
                        let foreign = found.into_iter().filter(|vip| !tables.is_vip(vip));
                        slice.repairs.extend(foreign.map(Step::DeleteVip));
                    } else {
                        self.go_on_with(Part::default());
                        slice.ends = true;
                    }
                }
            }
        }
        Ok(slice)
    }

    fn go_on_with(&mut self, part: Part) {
        *self = Self { part, ..Self::default() };
    }

    /// The next entries of an array, after which it goes on with `then`.
    fn range(&mut self, entries: u32, room: usize, then: Part) -> Range<u32> {
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let end = self.next.saturating_add(room).min(entries);
        let range = self.next.min(end)..end;
        if end == entries {
            self.go_on_with(then);
        } else {
            self.next = end;
        }
        range
    }

    fn look_for_frontends(
        &mut self,
        tables: &Dump,
        maps: &impl Contents<Walk = W>,
        room: usize,
        slice: &mut Slice,
    ) -> Result<(), MapError> {
        let from = self.last_frontend.map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked = 0;
        for (&key, &index) in tables.frontends.range((from, Bound::Unbounded)).take(room) {
            match maps.index_of(&key)? {
                Some(found) if found == index => {}
                Some(_) => slice
                    .repairs
                    .extend([Step::DeleteFrontend(key), Step::InsertFrontend { key, index }]),
                None => slice.repairs.push(Step::InsertFrontend { key, index }),
            }
            self.last_frontend = Some(key);
            looked += 1;
        }
        slice.entries += looked;
        if looked < room {
            self.go_on_with(Part::ForeignFrontends);
        }
        Ok(())
    }

    fn look_for_vips(
        &mut self,
        tables: &Dump,
        maps: &impl Contents<Walk = W>,
        room: usize,
        slice: &mut Slice,
    ) -> Result<(), MapError> {
        let from = self.last_vip.map_or(Bound::Unbounded, Bound::Excluded);
        let mut looked = 0;
        for &vip in tables.vips.range((from, Bound::Unbounded)).take(room) {
            if !maps.has_vip(&vip)? {
                slice.repairs.push(Step::InsertVip(vip));
            }
            self.last_vip = Some(vip);
            looked += 1;
        }
        slice.entries += looked;
        if looked < room {
            self.go_on_with(Part::ForeignVips);
        }
        Ok(())
    }
}

/// Compares entries of an array.
fn compare<T: Zeroable + PartialEq + Copy, const N: usize>(
    range: Range<u32>,
    expected: &Pages<T>,
    read: impl Fn(u32) -> T,
    slice: &mut Slice,
    repair: impl Fn(u32, T) -> [Step; N],
) {
    slice.entries += range.len();
    for index in range {
        let expected = expected.get(index as usize).copied().unwrap_or(T::zeroed());
        if read(index) != expected {
            slice.repairs.extend(repair(index, expected));
        }
    }
}

/// Of these writes, those that repair an entry each: what follows on one to the same is left out.
pub fn repaired(steps: &[Step]) -> impl Iterator<Item = &Step> {
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
        Maps as _, MemoryMaps,
        convert::frontend_key,
        fixtures::{address, desired, frontend, id, maps},
    };

    const CAPACITY: Capacity = Capacity { frontends: 8, endpoints: 16, clusters: 2 };

    fn world() -> (MemoryMaps, Dump) {
        let wanted = desired([
            (
                id("10.0.0.1", 80),
                frontend("web", &[("10.1.0.1:80", "east"), ("10.1.0.2:80", "west")]),
            ),
            (id("10.0.0.1", 81), frontend("shop", &[("10.1.0.3:80", "east")])),
            (id("fd00::1", 80), frontend("shop", &[])),
        ]);
        let (maps, realized) = maps(CAPACITY, &[&wanted]);
        (maps, realized.tables().clone())
    }

    /// A whole pass, in slices of this size, each of which is written.
    fn pass(maps: &mut MemoryMaps, tables: &Dump, budget: usize) -> (usize, Vec<Step>) {
        let (mut audit, mut entries, mut repairs) = (Audit::default(), 0, Vec::new());
        loop {
            let slice = audit.slice(tables, &*maps, CAPACITY, budget).expect("in memory");
            assert!(slice.entries <= budget + 1 || slice.ends, "{slice:?}");
            slice.repairs.iter().for_each(|step| maps.write(step).expect("no fault"));
            entries += slice.entries;
            repairs.extend(slice.repairs);
            if slice.ends {
                return (entries, repairs);
            }
        }
    }

    type Harm = fn(&mut Dump, FrontendKey);

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
                assert_eq!(repaired(&repairs).count() == 1, number != 4, "{number}: {repairs:?}");
                assert!(entries >= pass_entries(&tables, CAPACITY) - 1, "{entries}");
                let (_, rest) = pass(&mut maps, &tables, budget);
                assert_eq!(rest, [], "{number}");
            }
        }
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
