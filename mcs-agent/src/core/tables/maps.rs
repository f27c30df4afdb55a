//! How the agent reads and writes the config maps, in the kernel or in memory, and carries out a plan.

use std::{fmt::Display, io};

use mcs_common::{Address, AddressKinds, FrontendKey, select::Arrays};

use super::{MapContents, NameMap, NameRecord, Planned, Realized, Step};

/// The config maps, as their one writer sees them.
pub trait Maps {
    /// How they are read.
    type Reader: MapReader;

    /// Does one step.
    ///
    /// # Errors
    ///
    /// The kernel's answer. What the maps hold after that has to be read.
    fn write(&mut self, step: &Step) -> Result<(), MapError>;

    /// The same maps, to be read.
    fn reader(&self) -> &Self::Reader;
}

/// The config maps as user space reads them. Reads of the hash maps are system calls, which can fail;
/// the arrays are mapped.
pub trait MapReader: Arrays {
    /// Everything the maps hold. Not a snapshot: the agent may write between two reads.
    fn read_all(&self) -> Result<MapContents, MapError>;
    /// The mode at this key of `vips`.
    fn vip_mode(&self, vip: &Address) -> Result<Option<u32>, MapError>;
    /// What `hints` says of an address.
    fn kinds_of(&self, address: &Address) -> AddressKinds;
    /// The index at this key of `frontends`.
    fn index_of(&self, key: &FrontendKey) -> Result<Option<u32>, MapError>;
    /// The keys of `vips`.
    fn vips(&self) -> Result<Vec<Address>, MapError>;
    /// The keys of `frontends`.
    fn frontends(&self) -> Result<Vec<FrontendKey>, MapError>;
    /// An entry of a map of names.
    fn name(&self, map: NameMap, id: u32) -> Option<NameRecord>;
}

/// A read or write of a map failed. Displays without the kernel's answer, which is the source.
#[derive(Debug, thiserror::Error)]
#[error("map {map}: cannot {operation}")]
pub struct MapError {
    /// By its name in [`mcs_common::maps`].
    pub map: &'static str,
    /// What failed: a step, or a read of an entry or of all.
    pub operation: String,
    /// The kernel's answer.
    pub source: io::Error,
}

impl MapError {
    /// The step failed.
    pub fn writing(step: &Step, source: io::Error) -> Self {
        let map = step.map().unwrap_or("of maps");
        Self { map, operation: step.to_string(), source }
    }

    /// The entry, or `all`, could not be read.
    pub fn reading(map: &'static str, entry: impl Display, source: io::Error) -> Self {
        Self { map, operation: format!("read {entry}"), source }
    }
}

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
    use crate::core::{
        model::{Capacity, DesiredState},
        tables::{
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
