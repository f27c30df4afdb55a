//! The programs and maps in the kernel, as the agent uses them. Unit tests have a kernel in memory instead, so that they drive
//! the code that ships.

#[cfg(test)]
pub(super) mod testing;

#[cfg(not(test))]
pub(crate) use crate::core::kernel::{
    dataplane::{KernelMaps, KernelMapsReader, LivenessWriter, read_run_record, write_run_record},
    flows::{EvictionRecord, FlowMigration, FlowSweeper},
    loader::{Programs, detach_all},
    sockets::addresses_in_use,
};
#[cfg(not(test))]
use crate::core::{
    kernel::loader::{LoadError, Pins},
    model::Capacity,
};
#[cfg(test)]
pub(crate) use testing::{
    EvictionRecord, FlowMigration, FlowSweeper, KernelMaps, KernelMapsReader, LivenessWriter,
    Programs, addresses_in_use, detach_all, pinned_capacity, read_run_record, write_run_record,
};

/// The capacity of the maps that an earlier agent left.
#[cfg(not(test))]
pub(super) fn pinned_capacity(pins: &Pins) -> Result<Option<Capacity>, LoadError> {
    pins.capacity()
}
