//! Config maps for tests of the engine: in memory, growable, and failing on demand.

use std::time::Instant;

use anyhow::ensure;

use super::{Engine, RoundSummary};
use crate::core::{
    model::Capacity,
    tables::{
        MapContents, MapError, Maps, Step,
        testing::{FaultyMaps, MemoryMaps},
    },
};

/// Config maps that can be replaced by larger ones that hold the same.
pub trait GrowableMaps: Maps {
    /// Makes them larger.
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()>;
}

/// A round, with larger maps where it needs them: as the agent does it.
pub fn reconcile(
    engine: &mut Engine,
    maps: &mut impl GrowableMaps,
    clock: impl Fn() -> Instant,
) -> RoundSummary {
    let mut round = engine.reconcile(maps, &clock);
    while let Some(capacity) = round.larger {
        match maps.grow(capacity) {
            Ok(()) => engine.has_grown(capacity),
            Err(error) => drop(engine.has_not_grown(&error, clock())),
        }
        let next = engine.reconcile(maps, &clock);
        round = RoundSummary {
            rejected: round.rejected,
            planned: round.planned + next.planned,
            may_leave_stale: &round.may_leave_stale | &next.may_leave_stale,
            became_synced: round.became_synced || next.became_synced,
            ..next
        };
    }
    round
}

/// How maps fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Of 1000 writes, how many begin a burst of failures.
    pub per_mille: u16,
    /// How many writes in a row fail then.
    pub length: u32,
    /// Decides which writes fail.
    pub seed: u64,
}

/// Growable maps in memory.
#[derive(Clone, Debug)]
pub struct GrowableMemoryMaps {
    maps: FaultyMaps<MemoryMaps>,
    capacity: Capacity,
    faults: Faults,
    /// How many attempts to make larger maps are still to fail.
    pub failing_growths: u32,
    /// How often they became larger.
    pub growths: u32,
}

impl GrowableMemoryMaps {
    /// Empty maps without faults.
    pub fn new(capacity: Capacity) -> Self {
        Self::with_contents(capacity, MapContents::default(), Faults::default())
    }

    /// Maps as an agent left them.
    pub fn with_contents(capacity: Capacity, contents: MapContents, faults: Faults) -> Self {
        let maps = faulty(capacity, contents, faults);
        Self { maps, capacity, faults, failing_growths: 0, growths: 0 }
    }

    /// Changes which writes fail from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.maps = faulty(self.capacity, self.contents().clone(), faults);
    }

    /// What the maps have room for.
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// What the maps contain.
    pub const fn contents(&self) -> &MapContents {
        self.maps.maps.contents()
    }
}

fn faulty(capacity: Capacity, contents: MapContents, faults: Faults) -> FaultyMaps<MemoryMaps> {
    let maps = MemoryMaps::with_contents(capacity, contents);
    FaultyMaps::in_bursts(maps, faults.per_mille, faults.length, faults.seed)
}

impl Maps for GrowableMemoryMaps {
    type Reader = MemoryMaps;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        self.maps.write(step)
    }

    fn reader(&self) -> &MemoryMaps {
        self.maps.reader()
    }
}

impl GrowableMaps for GrowableMemoryMaps {
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()> {
        let fails = self.failing_growths > 0;
        self.failing_growths = self.failing_growths.saturating_sub(1);
        ensure!(!fails, "no memory for larger maps");
        self.faults.seed += 1;
        self.maps = faulty(capacity, self.contents().clone(), self.faults);
        self.capacity = capacity;
        self.growths += 1;
        Ok(())
    }
}

/// Growth fails as a write does.
impl<M: GrowableMaps> GrowableMaps for FaultyMaps<M> {
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()> {
        ensure!(!self.fails(), "no larger maps this time");
        self.maps.grow(capacity)
    }
}
