use std::collections::BTreeSet;

use mcs_common::{BackendState, FrontendKey, select::Tables};

use super::Realized;
use crate::{
    model::Capacity,
    reconcile::{Dump, convert::key_text, extents::Extents, ledger::Ledger},
};

/// A frontend that was found in the maps in a state that no agent leaves. The next plan withdraws
/// it, and sets it up anew if it is wanted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("frontend {} in the maps is damaged and is set up anew: {damage}", key_text(key))]
pub struct Finding {
    /// Which.
    pub key: FrontendKey,
    /// What is wrong with it.
    pub damage: Damage,
}

/// What can be wrong with a frontend as found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// Its index is 0 or past the end.
    #[error("index {0} is out of range")]
    Index(u32),
    /// The state at its index is another frontend's, or none.
    #[error("state {0} is not its own")]
    Echo(u32),
    /// Its service's index is past the end.
    #[error("service {0} is out of range")]
    Service(u32),
    /// Its extent is not within the map.
    #[error("{count} slots from {block} are out of range")]
    Extent {
        /// The first.
        block: u32,
        /// How many.
        count: u32,
    },
    /// A slot names a backend out of range, not active, of another frontend or of a cluster out of
    /// range.
    #[error("its slot {slot} names backend {id}, which is not an active one of its own")]
    Backend {
        /// Which slot.
        slot: u32,
        /// What it holds.
        id: u32,
    },
}

impl Realized {
    /// Takes over maps as an agent left them that may have died at any instant.
    ///
    /// Frontends that are whole go on as they are. All that nothing refers to is in limbo: a reader
    /// may hold it.
    pub fn restore(dump: Dump, capacity: Capacity) -> (Self, Vec<Finding>) {
        let mut realized = Self::new(capacity, dump, Ledger::new(capacity, Extents::in_limbo));
        let mut findings = Vec::new();
        let mut whole = Vec::new();
        for (&key, &index) in realized.tables.frontends.iter() {
            match inspect(&realized.tables, capacity, &key, index) {
                Ok(()) => whole.push(index),
                Err(damage) => findings.push(Finding { key, damage }),
            }
        }
        realized.damaged = findings.iter().map(|finding| finding.key).collect();
        for index in whole {
            realized.adopt(index);
        }
        realized.stale = left_active(&realized);
        (realized, findings)
    }
}

/// Whether a reader of this frontend comes to backends of its own, and of no other.
///
/// That no two frontends share an index or a slot follows: a state names one key, a backend one
/// index.
fn inspect(dump: &Dump, capacity: Capacity, key: &FrontendKey, index: u32) -> Result<(), Damage> {
    if index == 0 || index >= capacity.state_entries() {
        return Err(Damage::Index(index));
    }
    let state = dump.state(index).filter(|state| state.key == *key).ok_or(Damage::Echo(index))?;
    if state.service >= capacity.service_entries() {
        return Err(Damage::Service(state.service));
    }
    let (block, count) = (state.extent.block, state.extent.count);
    if block.checked_add(count).is_none_or(|end| end > capacity.slot_entries()) {
        return Err(Damage::Extent { block, count });
    }
    for slot in state.extent.range() {
        let id = dump.slot(slot).unwrap_or_default();
        let own = (1..capacity.backend_entries()).contains(&id)
            && dump.backend(id).is_some_and(|backend| {
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

/// Backends that no frontend refers to, but that a remembered choice would still be sent to.
fn left_active(realized: &Realized) -> BTreeSet<u32> {
    (1..realized.capacity.backend_entries())
        .zip(realized.tables.backends.iter().skip(1))
        .filter(|(id, backend)| {
            backend.state == BackendState::ACTIVE && !realized.ledger.backends.is_taken(*id)
        })
        .map(|(id, _)| id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::DesiredState,
        reconcile::{
            Maps, MemoryMaps, Step,
            convert::frontend_key,
            fixtures::{desired, frontend, go, id, maps, web},
        },
    };

    const CAPACITY: Capacity = Capacity { frontends: 4, endpoints: 8, clusters: 2 };

    /// `10.0.0.1:80` with backends 1 and 2 and `10.0.0.1:81` with backend 3.
    fn two() -> DesiredState {
        let both = [("10.1.0.1:80", "east"), ("10.1.0.2:80", "west")];
        desired([
            (id("10.0.0.1", 80), frontend("web", &both)),
            (id("10.0.0.1", 81), frontend("shop", &[("10.1.0.3:80", "east")])),
        ])
    }

    fn dump() -> Dump {
        maps(CAPACITY, &[&two()]).0.dump().expect("in memory")
    }

    fn at(key: FrontendKey, index: u32) -> Step {
        Step::InsertFrontend { key, index }
    }

    type Harm = fn(&mut Dump, FrontendKey);

    /// What befalls the frontend `10.0.0.1:80`, and how that is told.
    const CASES: [(Harm, Damage); 12] = [
        (|dump, key| dump.write(&at(key, 0)), Damage::Index(0)),
        (|dump, key| dump.write(&at(key, 5)), Damage::Index(5)),
        (|dump, key| dump.write(&at(key, 4)), Damage::Echo(4)),
        (|dump, key| dump.write(&at(key, 2)), Damage::Echo(2)),
        (|dump, _| dump.states[1].key.port = 8080, Damage::Echo(1)),
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
            assert_eq!(findings, [Finding { key, damage }]);
            assert_eq!(realized.index(&key), None);
            assert_eq!(realized.index(&frontend_key(&id("10.0.0.1", 81))), Some(2));

            let plan = crate::reconcile::plan(&DesiredState::default(), &realized, false);
            assert_eq!(plan.steps.first(), Some(&Step::DeleteFrontend(key)), "synced or not");

            let mut maps = MemoryMaps::with_contents(CAPACITY, harmed);
            go(&two(), &mut maps, &mut realized);
            assert_eq!(maps.contents().contents().to_string(), dump().contents().to_string());
            let (realized, findings) = Realized::restore(maps.contents().clone(), CAPACITY);
            assert_eq!(findings, []);
            assert_eq!(crate::reconcile::plan(&two(), &realized, true).steps, []);
        }
    }

    #[test]
    fn a_finding_tells_what_is_wrong_and_what_follows() {
        let key = frontend_key(&id("10.0.0.1", 80));
        let finding = Finding { key, damage: Damage::Backend { slot: 1, id: 9 } };
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
        let capacity = Capacity { frontends: 1, endpoints: 1, clusters: 1 };
        let (mut maps, _) = maps(capacity, &[&web("web", former), &web("web", new)]);
        for generation in 2..10 {
            let found = maps.dump().expect("in memory");
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
