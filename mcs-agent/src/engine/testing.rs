//! Config maps for tests of the engine: in memory, growable, and failing on demand.

use anyhow::{anyhow, ensure};

use super::{GrowableMaps, Mirror};
use crate::{
    model::Capacity,
    reconcile::{
        MapContents, MapError, Maps, Step,
        testing::{FaultyMaps, MemoryMaps},
    },
};

/// How maps fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Of 1000 writes, how many begin a burst of failures.
    pub per_mille: u16,
    /// How many writes in a row fail then.
    pub length: u32,
    /// Which ones follows from this.
    pub seed: u64,
}

/// Growable maps in memory. To make larger ones, and to switch to them, takes as long as a test wants.
#[derive(Clone, Debug)]
pub struct GrowableMemoryMaps {
    maps: Mirror<FaultyMaps<MemoryMaps>>,
    capacity: Capacity,
    /// Larger maps that are being made.
    making: Option<FaultyMaps<MemoryMaps>>,
    /// The capacity of the larger maps.
    next_capacity: Option<Capacity>,
    faults: Faults,
    /// Larger maps are not made as long as this is set.
    pub is_slow: bool,
    /// Programs on devices are not switched as long as this is set.
    pub is_stalled: bool,
    /// So many attempts to make larger maps fail.
    pub failing_moves: u32,
    /// So many attempts to finish a switch fail.
    pub failing_switches: u32,
}

impl GrowableMemoryMaps {
    /// Empty maps without faults.
    pub fn new(capacity: Capacity) -> Self {
        Self::with_contents(capacity, MapContents::default(), Faults::default())
    }

    /// Maps as an agent left them.
    pub fn with_contents(capacity: Capacity, contents: MapContents, faults: Faults) -> Self {
        Self {
            maps: Mirror::new(faulty(capacity, contents, faults)),
            capacity,
            making: None,
            next_capacity: None,
            faults,
            is_slow: false,
            is_stalled: false,
            failing_moves: 0,
            failing_switches: 0,
        }
    }

    /// Changes which writes fail from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        let contents = self.contents().clone();
        let next = self.next().cloned().zip(self.next_capacity);
        self.faults = faults;
        self.maps = Mirror::new(faulty(self.capacity, contents, faults));
        if let Some((contents, capacity)) = next {
            self.maps.set_next(faulty(capacity, contents, faults));
        }
    }

    /// What the maps contain that programs read, or did before a switch began.
    pub const fn contents(&self) -> &MapContents {
        self.maps.current().maps.contents()
    }

    /// What the maps contain that programs are being switched to.
    pub fn next(&self) -> Option<&MapContents> {
        self.maps.next().map(|next| next.maps.contents())
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
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn grow(&mut self, capacity: Capacity, contents: &MapContents) -> anyhow::Result<()> {
        ensure!(self.next_capacity.is_none(), "a move to larger maps is under way");
        self.faults.seed += 1;
        self.maps.begin_noting();
        self.making = Some(faulty(capacity, contents.clone(), self.faults));
        self.next_capacity = Some(capacity);
        Ok(())
    }

    fn finish_making(&mut self, wait: bool) -> anyhow::Result<bool> {
        let is_slow = self.is_slow && self.making.is_some() && !wait;
        if !is_slow {
            self.make()?;
        }
        Ok(!is_slow)
    }

    fn finish_switch(&mut self) -> anyhow::Result<bool> {
        if self.next_capacity.is_none() {
            return Ok(true);
        }
        let fails = self.failing_switches > 0;
        self.failing_switches = self.failing_switches.saturating_sub(1);
        ensure!(!fails, "a program cannot be switched");
        if self.is_stalled {
            return Ok(false);
        }
        self.maps.complete()?;
        self.maps.advance();
        self.capacity = self.next_capacity.take().unwrap_or(self.capacity);
        Ok(true)
    }

    fn filled(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl GrowableMemoryMaps {
    /// Completes the larger maps, if some are being made.
    fn make(&mut self) -> anyhow::Result<()> {
        let Some(mut next) = self.making.take() else { return Ok(()) };
        let fails = self.failing_moves > 0;
        self.failing_moves = self.failing_moves.saturating_sub(1);
        let failed = anyhow!("no memory for larger maps");
        let made = if fails { Err(failed) } else { Ok(()) };
        if let Err(error) = made.and_then(|()| Ok(self.maps.catch_up(&mut next).map(drop)?)) {
            self.maps.end_noting();
            self.next_capacity = None;
            return Err(error);
        }
        self.maps.set_next(next);
        Ok(())
    }
}

/// A move to larger maps fails as a write does.
impl<M: GrowableMaps> GrowableMaps for FaultyMaps<M> {
    fn capacity(&self) -> Capacity {
        self.maps.capacity()
    }

    fn grow(&mut self, capacity: Capacity, contents: &MapContents) -> anyhow::Result<()> {
        ensure!(!self.fails(), "no larger maps this time");
        self.maps.grow(capacity, contents)
    }

    fn finish_making(&mut self, wait: bool) -> anyhow::Result<bool> {
        self.maps.finish_making(wait)
    }

    fn finish_switch(&mut self) -> anyhow::Result<bool> {
        self.maps.finish_switch()
    }

    fn filled(&mut self) -> anyhow::Result<()> {
        self.maps.filled()
    }
}
