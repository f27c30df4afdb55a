//! Readers that watch the maps after every write, and remember.

use std::collections::BTreeMap;

use mcs_common::{
    BackendRecord, BackendRef, BackendState, Extent, FrontendKey,
    select::{self, Arrays as _, Lookup},
};

use super::{
    script::frontends,
    view::{Entry, Outcome, View, assert_usable, outcome, picks},
};
use crate::{
    model::DesiredState,
    reconcile::{MapError, Maps, Pruning, Step, convert::frontend_key, testing::MemoryMaps},
};

/// Maps in memory whose every state is read by every reader there can be.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    maps: MemoryMaps,
    /// What the maps may mean until all writes to come are done: what they meant before, and what they are to mean after.
    allowed: [View; 2],
    /// What readers may hold that started since the latest wait: an index with its key, and
    /// extents with what stood there.
    held: BTreeMap<(FrontendKey, u32, Extent), Vec<(u32, BackendRecord)>>,
    /// Choices that clients may remember for ever: for whom, and where they led.
    remembered: BTreeMap<(u32, BackendRef), (FrontendKey, BackendRecord)>,
    /// Where each use of each id led.
    used: BTreeMap<BackendRef, BackendRecord>,
}

impl Watched {
    pub(super) fn new(maps: MemoryMaps) -> Self {
        Self {
            maps,
            allowed: Default::default(),
            held: BTreeMap::new(),
            remembered: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    /// The writes to come lead from here to what is wanted.
    pub(super) fn expect(&mut self, desired: &DesiredState, pruning: Pruning) {
        let before = View::of(self.maps.contents());
        let after = before.after(desired, pruning);
        self.allowed = [before, after];
    }

    /// The writes have led where they were to.
    pub(super) fn assert_arrived(&self) {
        let [_, after] = &self.allowed;
        for key in keys() {
            let (now, expected) = (self.outcome(&key), after.outcomes(&key));
            assert!(expected.contains(&now), "{key:?}: {now:?}, {expected:?}");
        }
        assert!(self.maps.contents().vips.keys().eq(&after.vips));
        let present: Vec<_> = self.maps.contents().frontends.keys().collect();
        let expected: Vec<_> = after.entries.keys().collect();
        assert_eq!(present, expected);
    }

    fn outcome(&self, key: &FrontendKey) -> Outcome {
        outcome(&self.maps, self.maps.contents(), key)
    }

    fn watch(&mut self) {
        for key in keys() {
            self.assert_former_or_new(&key);
            self.assert_memory_serves(&key);
            self.hold(&key);
        }
        self.assert_held_are_whole();
    }

    /// Clients meet what they met before the plan, or what they are to meet after. Backends and
    /// attributes may change one after the other.
    fn assert_former_or_new(&self, key: &FrontendKey) {
        let allowed: Vec<_> = self.allowed.iter().flat_map(|view| view.outcomes(key)).collect();
        let now = self.outcome(key);
        let is_allowed = |same: fn(&Entry, &Entry) -> bool| {
            allowed.iter().any(|allowed| match (&now, allowed) {
                (Outcome::Found(now), Outcome::Found(allowed)) => same(now, allowed),
                _ => now == *allowed,
            })
        };
        assert!(is_allowed(|a, b| a.backends == b.backends), "{key:?}: {now:?}, {allowed:?}");
        assert!(is_allowed(Entry::same_attributes), "{key:?}: {now:?}, {allowed:?}");
    }

    /// A choice remembered leads where it led, or nowhere.
    fn assert_memory_serves(&self, key: &FrontendKey) {
        let Lookup::Found(found) = select::lookup(&self.maps, key) else { return };
        let of_index = (found.index, BackendRef::default())
            ..=(found.index, BackendRef { id: u32::MAX, generation: u32::MAX });
        for (&(index, reference), (owner, backend)) in self.remembered.range(of_index) {
            if let Some(choice) = select::recall(&self.maps, index, reference) {
                assert_eq!(owner, key, "another frontend's choice is followed");
                assert_eq!(BackendRecord { state: backend.state, ..choice.backend }, *backend);
            }
        }
    }

    /// A reader gets this far, and pauses.
    fn hold(&mut self, key: &FrontendKey) {
        let Lookup::Found(found) = select::lookup(&self.maps, key) else { return };
        let extent = found.state.extent;
        let choices = picks(&self.maps, extent);
        for choice in &choices {
            let active = BackendRecord { state: BackendState::ACTIVE, ..choice.backend };
            let remembered = self.remembered.entry((found.index, choice.chosen));
            assert_eq!(*remembered.or_insert((*key, active)), (*key, active));
            let same_use = self.used.entry(choice.chosen).or_insert(active);
            assert_eq!(*same_use, active, "a generation is used twice");
        }
        let contents = choices.into_iter().map(|choice| (choice.chosen.id, choice.backend));
        self.held.entry((*key, found.index, extent)).or_insert_with(|| contents.collect());
    }

    /// Readers that pause since before the latest wait still find what they came for.
    fn assert_held_are_whole(&self) {
        for ((key, index, extent), contents) in &self.held {
            for (slot, (id, backend)) in extent.range().zip(contents) {
                assert_eq!(self.maps.slot(slot), Some(*id), "a slot in use was written");
                let now = self.maps.backend(*id).expect("an entry");
                assert_eq!(BackendRecord { state: backend.state, ..now }, *backend);
                assert!(now.state != BackendState::FREE);
            }
            let state = self.maps.state(*index).expect("an entry");
            assert_eq!(state.key, *key, "an index in use was written");
            assert_usable(&picks(&self.maps, state.extent), *index);
        }
    }
}

impl Maps for Watched {
    type Reader = MemoryMaps;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if *step == Step::WaitForReaders {
            self.held.clear();
        }
        self.watch();
        self.maps.write(step)?;
        self.watch();
        Ok(())
    }

    fn reader(&self) -> &MemoryMaps {
        &self.maps
    }
}

fn keys() -> Vec<FrontendKey> {
    frontends().iter().map(frontend_key).collect()
}
