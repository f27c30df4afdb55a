//! Carries out a plan.

use super::{MapError, Maps, Planned, Realized};

/// A write failed, and the plan stopped there. Every frontend has its former or its new backends and
/// attributes; a new plan from the realized state has the remaining steps.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {done} of {planned} writes to the maps; the rest follows")]
pub struct ApplyError {
    /// How many steps succeeded.
    pub done: usize,
    /// How many steps the plan has.
    pub planned: usize,
    /// The write that failed.
    pub source: MapError,
}

/// Does the steps of a plan in order. `realized` becomes the state after the plan. After a write that failed it becomes
/// what the maps hold.
///
/// # Errors
///
/// The first write that fails.
pub fn apply(
    Planned { plan, realized: after }: Planned,
    maps: &mut impl Maps,
    realized: &mut Realized,
) -> Result<(), ApplyError> {
    let planned = plan.steps.len();
    for (done, step) in plan.steps.iter().enumerate() {
        if let Err(source) = maps.write(step) {
            plan.steps[..done].iter().for_each(|step| realized.record(step));
            realized.read_again(maps.reader());
            return Err(ApplyError { done, planned, source });
        }
    }
    *realized = after;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Capacity, DesiredState},
        reconcile::{
            Pruning,
            fixtures::{go, web},
            plan,
            testing::{FaultyMaps, MemoryMaps},
        },
    };

    #[test]
    fn every_step_is_written() {
        let capacity = Capacity { vips: 1, frontends: 1, endpoints: 1, clusters: 1, imports: 1 };
        let mut maps = MemoryMaps::new(capacity);
        let mut realized = Realized::empty(capacity);
        let mut go = |desired: &DesiredState| go(desired, &mut maps, &mut realized);
        assert_eq!(
            go(&web("web", &[("10.1.0.1:80", "east")])),
            [
                "services: write entry 1",
                "clusters: write entry 1",
                "backends: write backend 1",
                "slots: write 1 slots from 0",
                "states: write state 1",
                "frontends: insert 10.0.0.1:80/TCP at index 1",
                "vips: insert 10.0.0.1",
            ]
        );
        assert_eq!(
            go(&web("web", &[("10.1.0.2:80", "east")])),
            [
                "backends: write backend 2",
                "slots: write 1 slots from 1",
                "states: flip state 1 to 1 slots from 1",
                "backends: retire backend 1",
            ]
        );
        // Slot 0 still names backend 1.
        assert_eq!(
            go(&web("web", &[("10.1.0.3:80", "east")])),
            [
                "all: wait for readers",
                "backends: write backend 1",
                "states: flip state 1 to 1 slots from 0",
                "backends: retire backend 2",
            ]
        );
        assert_eq!(
            go(&DesiredState::default()),
            [
                "vips: delete 10.0.0.1",
                "frontends: delete 10.0.0.1:80/TCP",
                "backends: retire backend 1",
            ]
        );
        assert_eq!(realized.contents(), maps.contents());
    }

    #[test]
    fn the_first_failure_stops_it() {
        let capacity = Capacity::default();
        let mut maps = FaultyMaps::new(MemoryMaps::new(capacity), 1000, 0);
        let mut realized = Realized::empty(capacity);
        let plan = plan(&web("web", &[]), &realized, Pruning::On);
        let plan = Planned::after(plan.steps, &realized);
        let error = apply(plan, &mut maps, &mut realized).expect_err("every insertion fails");
        assert_eq!(error.to_string(), "stopped after 2 of 4 writes to the maps; the rest follows");
        assert_eq!(realized.contents(), maps.maps.contents());
    }
}
