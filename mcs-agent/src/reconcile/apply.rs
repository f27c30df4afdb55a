use super::{MapError, Maps, Plan, Realized, Step};

/// What a plan did, or how far it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Steps done.
    pub steps: u32,
    /// VIPs inserted.
    pub vips_inserted: u32,
    /// VIPs deleted.
    pub vips_deleted: u32,
    /// Frontends inserted.
    pub frontends_inserted: u32,
    /// Frontends deleted.
    pub frontends_deleted: u32,
    /// Frontends whose set of backends changed.
    pub frontends_flipped: u32,
    /// Backends written.
    pub backends_written: u32,
    /// Backends retired.
    pub backends_retired: u32,
    /// Waits for readers.
    pub waits: u32,
}

impl Applied {
    fn count(&mut self, step: &Step) {
        self.steps += 1;
        let kind = match step {
            Step::InsertVip(_) => &mut self.vips_inserted,
            Step::DeleteVip(_) => &mut self.vips_deleted,
            Step::InsertFrontend { .. } => &mut self.frontends_inserted,
            Step::DeleteFrontend(_) => &mut self.frontends_deleted,
            Step::Flip { .. } => &mut self.frontends_flipped,
            Step::WriteBackend { .. } => &mut self.backends_written,
            Step::RetireBackend { .. } => &mut self.backends_retired,
            Step::WaitForReaders => &mut self.waits,
            Step::WriteService { .. }
            | Step::WriteCluster { .. }
            | Step::WriteSlots { .. }
            | Step::WriteState { .. }
            | Step::UpdateAttributes { .. } => return,
        };
        *kind += 1;
    }
}

/// A plan stopped at a write that failed. Every frontend is whole, as it was or as it is to be; a
/// new plan made from what is realized does the rest.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {} of {planned} writes to the maps; the rest follows", done.steps)]
pub struct ApplyError {
    /// What was done.
    pub done: Applied,
    /// The steps of the plan.
    pub planned: usize,
    /// The write that failed.
    pub source: MapError,
}

/// Does the steps of a plan in order, and keeps `realized` up with each.
///
/// # Errors
///
/// At the first write that fails. `realized` allows for its having taken effect: plan anew from it,
/// after a while.
pub fn apply(
    plan: &Plan,
    maps: &mut impl Maps,
    realized: &mut Realized,
) -> Result<Applied, ApplyError> {
    let mut done = Applied::default();
    for step in &plan.steps {
        if let Err(source) = maps.write(step) {
            realized.doubt(step);
            return Err(ApplyError { done, planned: plan.steps.len(), source });
        }
        realized.advance(step);
        done.count(step);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Capacity, DesiredState},
        reconcile::{Faulty, MemoryMaps, fixtures::web, plan},
    };

    #[test]
    fn what_was_done_is_counted() {
        let capacity = Capacity { frontends: 1, endpoints: 1, clusters: 1 };
        let mut maps = MemoryMaps::new(capacity);
        let mut realized = Realized::empty(capacity);
        let mut go = |desired: &DesiredState| {
            let plan = plan(desired, &realized, true);
            apply(&plan, &mut maps, &mut realized).expect("no fault")
        };
        assert_eq!(
            go(&web("web", &[("10.1.0.1:80", "east")])),
            Applied {
                steps: 7,
                vips_inserted: 1,
                frontends_inserted: 1,
                backends_written: 1,
                ..Applied::default()
            }
        );
        assert_eq!(
            go(&web("web", &[("10.1.0.2:80", "east")])),
            Applied {
                steps: 4,
                frontends_flipped: 1,
                backends_written: 1,
                backends_retired: 1,
                ..Applied::default()
            }
        );
        assert_eq!(
            go(&web("web", &[("10.1.0.3:80", "east")])),
            Applied {
                steps: 4,
                frontends_flipped: 1,
                backends_written: 1,
                backends_retired: 1,
                waits: 1,
                ..Applied::default()
            }
        );
        assert_eq!(
            go(&DesiredState::default()),
            Applied {
                steps: 3,
                vips_deleted: 1,
                frontends_deleted: 1,
                backends_retired: 1,
                ..Applied::default()
            }
        );
    }

    #[test]
    fn the_first_failure_stops_it() {
        let capacity = Capacity::default();
        let mut maps = Faulty::new(MemoryMaps::new(capacity), 1000, 0);
        let mut realized = Realized::empty(capacity);
        let plan = plan(&web("web", &[]), &realized, true);
        let error = apply(&plan, &mut maps, &mut realized).expect_err("every write fails");
        assert_eq!(error.done, Applied::default());
        assert_eq!(error.to_string(), "stopped after 0 of 4 writes to the maps; the rest follows");
    }
}
