use anyhow::{Context as _, ensure};
use mcs_agent::reconcile::{Dump, MapError, Maps, MemoryMaps, Plan, Step};

use super::view::View;

/// Maps that outlive the agent.
pub trait Backing: Maps {
    /// Gets them as a new agent does that takes them over.
    fn reopen(&mut self) -> anyhow::Result<()>;
}

impl Backing for MemoryMaps {
    fn reopen(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Maps that a reader looks at after every write.
#[derive(Debug)]
pub(super) struct Watched<M> {
    maps: M,
    /// What clients may find: what they found before, what the agent takes that to be, what it is
    /// after.
    allowed: Vec<View>,
    /// What was wrong first.
    fault: Option<anyhow::Error>,
}

impl<M: Backing> Watched<M> {
    pub(super) fn new(maps: M) -> Self {
        Self { maps, allowed: Vec::new(), fault: None }
    }

    pub(super) fn view(&self) -> anyhow::Result<View> {
        View::of(&self.maps.dump()?)
    }

    /// The writes to come are those of the plan, made from what the agent takes the maps to hold.
    pub(super) fn expect(&mut self, plan: &Plan, believed: &Dump) -> anyhow::Result<()> {
        let mut planned = believed.clone();
        for step in &plan.steps {
            planned.write(step);
        }
        let (believed, planned) = (View::of(believed)?, View::of(&planned).context("planned")?);
        planned.check_keeps(&believed)?;
        self.allowed = vec![self.view()?, believed, planned];
        Ok(())
    }

    /// What was wrong with the writes so far.
    pub(super) fn verdict(&mut self) -> anyhow::Result<()> {
        self.fault.take().map_or(Ok(()), Err)
    }

    pub(super) fn reopen(&mut self) -> anyhow::Result<()> {
        let before = self.view()?;
        self.maps.reopen().context("cannot take the maps over")?;
        ensure!(self.view()? == before, "the maps do not outlive the agent");
        Ok(())
    }

    fn look(&self) -> anyhow::Result<()> {
        self.view()?.check_made_of(&self.allowed)
    }
}

impl<M: Backing> Maps for Watched<M> {
    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        let result = self.maps.write(step);
        // Faults are injected above: one that comes from below is a mistake of the plan.
        let fault = match &result {
            Ok(()) => self.look(),
            Err(error) => Err(anyhow::anyhow!("{error}: {}", error.source)),
        };
        if let Err(fault) = fault {
            self.fault.get_or_insert(fault.context(format!("at the step `{step}`")));
        }
        result
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.maps.dump()
    }
}

#[cfg(test)]
mod tests {
    use mcs_agent::{model::Capacity, reconcile::Realized};
    use mcs_common::Extent;

    use super::{
        super::view::tests::{backend, dump, key},
        *,
    };

    /// What comes of these writes when the plan was to refuse.
    fn verdict(steps: &[Step]) -> anyhow::Result<()> {
        let capacity = Capacity { frontends: 2, endpoints: 2, clusters: 1 };
        let mut maps = Watched::new(MemoryMaps::with_contents(capacity, dump()));
        let (realized, _) = Realized::restore(dump(), capacity);
        let refuse = Step::Flip { index: 1, extent: Extent::default() };
        let plan = Plan { steps: vec![refuse], deferred: vec![] };
        maps.expect(&plan, realized.tables())?;
        for step in steps {
            let _ = maps.write(step);
        }
        maps.verdict()
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
