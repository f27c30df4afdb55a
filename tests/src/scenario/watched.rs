//! Maps under test: after every write, every client look-up is checked.

use anyhow::{Context as _, ensure};
use mcs_agent::{
    engine::testing::GrowableMaps,
    model::Capacity,
    reconcile::{MapContents, MapError, MapReader as _, MapView, Maps, Step, testing::MemoryMaps},
};

use super::view::{check_keeps, check_made_of, view_of};

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

/// Maps that a reader looks at after every write.
#[derive(Debug)]
pub(super) struct Watched<M> {
    maps: M,
    /// Writes left until the agent dies. Later writes have no effect.
    writes_left: Option<usize>,
    /// What clients found before the first write.
    before: MapView,
    /// What they found after each.
    seen: Vec<(Step, MapView)>,
    /// What was wrong first.
    fault: Option<anyhow::Error>,
}

impl<M: Backing> Watched<M> {
    pub(super) fn new(maps: M) -> anyhow::Result<Self> {
        let before = view_of(&maps.reader().read_all()?)?;
        Ok(Self { maps, writes_left: None, before, seen: Vec::new(), fault: None })
    }

    pub(super) fn view(&self) -> anyhow::Result<MapView> {
        view_of(&self.maps.reader().read_all()?)
    }

    /// Lets the agent die after this number of writes.
    pub(super) fn die_after(&mut self, writes: usize) {
        self.writes_left = Some(writes);
    }

    /// Begins to look at the writes of a round.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
        self.before = self.view()?;
        self.seen.clear();
        Ok(())
    }

    /// Fails if the writes since [`Watched::watch`] do not lead from what the agent took the maps to hold to what was
    /// planned: clients may have found what there was before, what the agent took that to be, and what is planned.
    pub(super) fn verdict(
        &mut self,
        believed: &MapContents,
        planned: &MapContents,
    ) -> anyhow::Result<()> {
        self.fault.take().map_or(Ok(()), Err)?;
        let (believed, planned) = (view_of(believed)?, view_of(planned).context("planned")?);
        check_keeps(&planned, &believed)?;
        let allowed = [std::mem::take(&mut self.before), believed, planned];
        for (step, view) in self.seen.drain(..) {
            check_made_of(&view, &allowed).with_context(|| format!("at the step `{step}`"))?;
        }
        Ok(())
    }

    pub(super) fn reopen(&mut self) -> anyhow::Result<()> {
        let before = self.view()?;
        self.maps.reopen().context("cannot take the maps over")?;
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

    fn note(&mut self, fault: anyhow::Error, step: &Step) {
        self.fault.get_or_insert(fault.context(format!("at the step `{step}`")));
    }
}

impl<M: Backing> Maps for Watched<M> {
    type Reader = M::Reader;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        if self.is_dead() {
            return Err(MapError::writing(step, std::io::ErrorKind::Interrupted.into()));
        }
        let result = self.maps.write(step);
        // Faults are injected above: one that comes from below is a mistake of the plan.
        match (&result, self.view()) {
            (Ok(()), Ok(view)) => self.seen.push((step.clone(), view)),
            (Ok(()), Err(fault)) => self.note(fault, step),
            (Err(error), _) => self.note(anyhow::anyhow!("{error}: {}", error.source), step),
        }
        result
    }

    fn reader(&self) -> &M::Reader {
        self.maps.reader()
    }
}

impl<M: Backing> GrowableMaps for Watched<M> {
    fn grow(&mut self, capacity: Capacity) -> anyhow::Result<()> {
        ensure!(self.writes_left != Some(0), "the agent is dead");
        let before = self.maps.reader().read_all()?;
        self.maps.grow(capacity).context("the maps cannot grow")?;
        ensure!(self.maps.reader().read_all()? == before, "larger maps do not hold the same");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mcs_agent::reconcile::Realized;
    use mcs_common::Extent;

    use super::{
        super::view::tests::{backend, dump, key},
        *,
    };

    /// What comes of these writes when the plan was to refuse.
    fn verdict(steps: &[Step]) -> anyhow::Result<()> {
        let capacity = Capacity { vips: 2, frontends: 2, endpoints: 2, clusters: 1, imports: 2 };
        let maps = MemoryMaps::with_contents(capacity, dump());
        let mut maps = Watched::new(maps)?;
        let (realized, _) = Realized::restore(dump(), capacity);
        maps.watch()?;
        for step in steps {
            let _ = maps.write(step);
        }
        let refuse = Step::Flip { index: 1, extent: Extent::default() };
        let mut planned = realized.contents().clone();
        planned.write(&refuse);
        maps.verdict(realized.contents(), &planned)
    }

    #[test]
    fn every_write_is_looked_at() {
        let refuse = || Step::Flip { index: 1, extent: Extent::default() };
        verdict(&[Step::WriteBackend { id: 3, backend: backend(3) }, refuse()]).unwrap();

        let vanish = verdict(&[Step::DeleteFrontend(key()), refuse()]).unwrap_err();
        assert!(format!("{vanish:#}").contains("at the step `delete 10.96.0.1:80/TCP`"));

        let beyond = verdict(&[Step::WriteBackend { id: 5, backend: backend(3) }]).unwrap_err();
        assert!(format!("{beyond:#}").contains("Argument list too long"));
    }
}
