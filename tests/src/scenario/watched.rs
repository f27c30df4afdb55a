//! Maps under test, whose agent may die at any write.

use anyhow::{Context as _, ensure};
use mcs_agent::core::{
    engine::testing::GrowableMaps,
    model::Capacity,
    tables::{
        MapContents, MapError, MapReader as _, MapView, Maps, Step,
        testing::{self, MemoryMaps, check_keeps, view_of},
    },
};

/// Maps that outlive the agent.
pub trait Backing: Maps {
    /// Gets them as a new agent does that takes them over.
    fn reopen(&mut self) -> anyhow::Result<()>;

    /// Makes them larger. They hold the same.
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()>;
}

impl Backing for MemoryMaps {
    fn reopen(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()> {
        *self = Self::with_contents(capacity, self.contents().clone());
        Ok(())
    }
}

/// Maps that readers look into after every write.
#[derive(Debug)]
pub(super) struct Watched<M> {
    maps: testing::Watched<M>,
    /// Writes left until the agent dies. Later writes have no effect.
    writes_left: Option<usize>,
}

impl<M: Backing> Watched<M> {
    pub(super) fn new(maps: M) -> anyhow::Result<Self> {
        Ok(Self { maps: testing::Watched::new(maps)?, writes_left: None })
    }

    pub(super) fn view(&self) -> anyhow::Result<MapView> {
        self.maps.view()
    }

    /// Lets the agent die after this number of writes.
    pub(super) fn die_after(&mut self, writes: usize) {
        self.writes_left = Some(writes);
    }

    /// Begins to look at the writes of a round.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
        self.maps.watch()
    }

    /// Fails if the writes since [`Watched::watch`] do not lead from what the agent took the maps to hold to what was
    /// planned: clients may have found what there was before, what the agent took that to be, and what is planned.
    pub(super) fn verdict(
        &mut self,
        believed: &MapContents,
        planned: &MapContents,
    ) -> anyhow::Result<()> {
        let (believed, planned) = (view_of(believed)?, view_of(planned).context("planned")?);
        check_keeps(&planned, &believed)?;
        self.maps.verdict(&[believed, planned])
    }

    pub(super) fn reopen(&mut self) -> anyhow::Result<()> {
        let before = self.view()?;
        self.maps.maps.reopen().context("cannot take the maps over")?;
        ensure!(self.view()? == before, "the maps do not outlive the agent");
        self.writes_left = None;
        Ok(())
    }

    /// Whether the agent is dead. Counts a write.
    fn is_dead(&mut self) -> bool {
        let left = self.writes_left;
        self.writes_left = left.map(|writes| writes.saturating_sub(1));
        left == Some(0)
    }
}

impl<M: Backing> Maps for Watched<M> {
    type Reader = M::Reader;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if self.is_dead() {
            return Err(MapError::writing(step, std::io::ErrorKind::Interrupted.into()));
        }
        self.maps.write(step)
    }

    fn reader(&self) -> &M::Reader {
        self.maps.reader()
    }
}

impl<M: Backing> GrowableMaps for Watched<M> {
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()> {
        ensure!(self.writes_left != Some(0), "the agent is dead");
        let before = self.reader().read_all()?;
        self.maps.maps.grow(capacity).context("the maps cannot grow")?;
        ensure!(self.reader().read_all()? == before, "larger maps do not hold the same");
        Ok(())
    }
}
