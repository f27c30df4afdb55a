//! Takes over the maps that another agent left.

use mcs_common::{BackendState, FrontendKey, select::Arrays as _};

use super::Realized;
use crate::core::{
    model::Capacity,
    tables::{
        MapContents, MapReader,
        allocations::{Allocations, FreeList},
        contents::key_text,
    },
};

/// A frontend in the maps in a state that no agent leaves. The next plan deletes it, and creates it again
/// if it is desired.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("frontend {} in the maps is damaged and is set up anew: {damage}", key_text(key))]
pub struct DamagedFrontend {
    /// Its key in the map.
    pub key: FrontendKey,
    /// The first fault.
    pub damage: Damage,
}

/// A fault of a frontend in the maps.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// Its index is 0 or past the end.
    #[error("index {0} is out of range")]
    Index(u32),
    /// The state at its index is another frontend's, or none.
    #[error("state {0} is not its own")]
    State(u32),
    /// Its service's index is past the end.
    #[error("service {0} is out of range")]
    Service(u32),
    /// Its extent is out of range.
    #[error("{count} slots from {block} are out of range")]
    Extent {
        /// The first slot.
        block: u32,
        /// How many slots.
        count: u32,
    },
    /// A slot names a backend out of range, not active, of another frontend or of a cluster out of
    /// range.
    #[error("its slot {slot} names backend {id}, which is not an active one of its own")]
    Backend {
        /// The slot.
        slot: u32,
        /// The id in the slot.
        id: u32,
    },
}

impl Realized {
    /// Takes over maps from an agent that may have died at any instant.
    ///
    /// Frontends without damage stay as they are. All entries that no frontend refers to are released only: a
    /// program may still read them.
    pub fn restore(contents: MapContents, capacity: Capacity) -> (Self, Vec<DamagedFrontend>) {
        let mut realized =
            Self::new(capacity, contents, Allocations::new(capacity, FreeList::all_released));
        let mut findings = Vec::new();
        let mut intact = Vec::new();
        for (&key, &index) in realized.contents.frontends.iter() {
            match inspect(&realized.contents, capacity, &key, index) {
                Ok(()) => intact.push(index),
                Err(damage) => findings.push(DamagedFrontend { key, damage }),
            }
        }
        realized.damaged = findings.iter().map(|finding| finding.key).collect();
        for index in intact {
            realized.publish(index);
        }
        for (id, is_kept) in without_slot(&realized) {
            if is_kept && realized.udp_frontend_of(id).is_some() {
                realized.keep(id);
            } else {
                realized.undecided.insert(id);
            }
        }
        (realized, findings)
    }

    /// Takes over the maps after a write that failed. If the read fails too, the realized state stays as the steps before
    /// the failure left it.
    pub(crate) fn read_again(&mut self, maps: &impl MapReader) {
        if let Ok(contents) = maps.read_all() {
            *self = Self::restore(contents, self.capacity).0;
        }
    }
}

/// Checks that a reader of this frontend finds its backends, and no other frontend's.
///
/// So no two frontends share an index or a slot: a state names one key, a backend one index.
fn inspect(
    contents: &MapContents,
    capacity: Capacity,
    key: &FrontendKey,
    index: u32,
) -> Result<(), Damage> {
    if index == 0 || index >= capacity.state_entries() {
        return Err(Damage::Index(index));
    }
    let state =
        contents.state(index).filter(|state| state.key == *key).ok_or(Damage::State(index))?;
    if state.service >= capacity.service_entries() {
        return Err(Damage::Service(state.service));
    }
    let (block, count) = (state.extent.block, state.extent.count);
    if block.checked_add(count).is_none_or(|end| end > capacity.slot_entries()) {
        return Err(Damage::Extent { block, count });
    }
    for slot in state.extent.range() {
        let id = contents.slot(slot).unwrap_or_default();
        let own = (1..capacity.backend_entries()).contains(&id)
            && contents.backend(id).is_some_and(|backend| {
                backend.state == BackendState::ACTIVE
                    && backend.frontend == index
                    && backend.cluster < capacity.cluster_entries()
            });
        if !own {
            return Err(Damage::Backend { slot, id });
        }
    }
    Ok(())
}

/// Backends that no slot names, but that remembered choices still lead to, and whether each is kept.
fn without_slot(realized: &Realized) -> Vec<(u32, bool)> {
    (1..realized.capacity.backend_entries())
        .zip(realized.contents.backends.iter().skip(1))
        .filter(|(id, _)| !realized.allocations.backends.is_taken(*id))
        .filter_map(|(id, backend)| match backend.state {
            BackendState::ACTIVE => Some((id, false)),
            BackendState::KEPT => Some((id, true)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::DesiredState,
        tables::{
            MapView, Pruning, Step,
            contents::frontend_key,
            fixtures::{desired, frontend, go, id, maps, web},
            testing::MemoryMaps,
        },
    };

    const CAPACITY: Capacity =
        Capacity { vips: 4, frontends: 4, endpoints: 8, clusters: 2, imports: 4 };

    /// `10.0.0.1:80` with backends 1 and 2 and `10.0.0.1:81` with backend 3.
    fn two() -> DesiredState {
        let both = [("10.1.0.1:80", "east"), ("10.1.0.2:80", "west")];
        desired([
            (id("10.0.0.1", 80), frontend("web", &both)),
            (id("10.0.0.1", 81), frontend("shop", &[("10.1.0.3:80", "east")])),
        ])
    }

    fn dump() -> MapContents {
        maps(CAPACITY, &[&two()]).0.contents().clone()
    }

    fn at(key: FrontendKey, index: u32) -> Step {
        Step::InsertFrontend { key, index }
    }

    type Harm = fn(&mut MapContents, FrontendKey);

    /// What each change does to the frontend `10.0.0.1:80`, and the damage that is reported.
    const CASES: [(Harm, Damage); 12] = [
        (|dump, key| dump.write(&at(key, 0)), Damage::Index(0)),
        (|dump, key| dump.write(&at(key, 5)), Damage::Index(5)),
        (|dump, key| dump.write(&at(key, 4)), Damage::State(4)),
        (|dump, key| dump.write(&at(key, 2)), Damage::State(2)),
        (|dump, _| dump.states[1].key.port = 8080, Damage::State(1)),
        (|dump, _| dump.states[1].service = 9, Damage::Service(9)),
        (
            |dump, _| dump.states[1].extent.block = u32::MAX,
            Damage::Extent { block: u32::MAX, count: 2 },
        ),
        (|dump, _| dump.states[1].extent.block = 31, Damage::Extent { block: 31, count: 2 }),
        (|dump, _| dump.states[1].extent.block = 1, Damage::Backend { slot: 2, id: 3 }),
        (|dump, _| dump.slots[1] = 0, Damage::Backend { slot: 1, id: 0 }),
        (|dump, _| dump.slots[1] = 17, Damage::Backend { slot: 1, id: 17 }),
        (
            |dump, _| dump.backends[2].state = BackendState::RETIRED,
            Damage::Backend { slot: 1, id: 2 },
        ),
    ];

    #[test]
    fn what_is_damaged_is_withdrawn_first_and_set_up_anew() {
        let key = frontend_key(&id("10.0.0.1", 80));
        for (harm, damage) in CASES {
            let mut harmed = dump();
            harm(&mut harmed, key);
            let (mut realized, findings) = Realized::restore(harmed.clone(), CAPACITY);
            assert_eq!(findings, [DamagedFrontend { key, damage }]);
            assert_eq!(realized.index(&key), None);
            assert_eq!(realized.index(&frontend_key(&id("10.0.0.1", 81))), Some(2));

            let plan = crate::core::tables::plan(&DesiredState::default(), &realized, Pruning::Off);
            assert_eq!(plan.steps.first(), Some(&Step::DeleteFrontend(key)), "synced or not");

            let mut maps = MemoryMaps::with_contents(CAPACITY, harmed);
            go(&two(), &mut maps, &mut realized);
            assert_eq!(MapView::of(maps.contents()).to_string(), MapView::of(&dump()).to_string());
            let (realized, findings) = Realized::restore(maps.contents().clone(), CAPACITY);
            assert_eq!(findings, []);
            assert_eq!(crate::core::tables::plan(&two(), &realized, Pruning::On).steps, []);
        }
    }

    #[test]
    fn a_finding_tells_what_is_wrong_and_what_follows() {
        let key = frontend_key(&id("10.0.0.1", 80));
        let finding = DamagedFrontend { key, damage: Damage::Backend { slot: 1, id: 9 } };
        assert_eq!(
            finding.to_string(),
            "frontend 10.0.0.1:80/TCP in the maps is damaged and is set up anew: its slot 1 names \
             backend 9, which is not an active one of its own"
        );
    }

    #[test]
    fn what_nothing_refers_to_is_retired_and_not_used_before_a_wait() {
        let mut found = dump();
        found.write(&Step::DeleteFrontend(frontend_key(&id("10.0.0.1", 80))));
        let (mut realized, findings) = Realized::restore(found.clone(), CAPACITY);
        assert_eq!(findings, []);
        let mut maps = MemoryMaps::with_contents(CAPACITY, found);
        let steps = go(&two(), &mut maps, &mut realized);
        assert_eq!(
            steps[..4],
            [
                "backends: retire backend 1",
                "backends: retire backend 2",
                "all: wait for readers",
                "backends: write backend 1"
            ]
        );
    }

    #[test]
    fn a_generation_found_is_not_used_again() {
        let (former, new) = (&[("10.1.0.1:80", "")], &[("10.1.0.2:80", "")]);
        let capacity = Capacity { vips: 1, frontends: 1, endpoints: 1, clusters: 1, imports: 1 };
        let (mut maps, _) = maps(capacity, &[&web("web", former), &web("web", new)]);
        for generation in 2..10 {
            let found = maps.contents().clone();
            let (mut realized, _) = Realized::restore(found, capacity);
            go(
                &web("web", if generation % 2 == 0 { former } else { new }),
                &mut maps,
                &mut realized,
            );
            let generations = maps.contents().backends.iter().map(|backend| backend.generation);
            assert_eq!(generations.sum::<u32>(), generation + 1);
        }
    }
}
