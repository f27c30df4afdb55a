//! Config maps in memory, with the kernel's limits, with writes that fail, and with readers that look at every write, for tests only.

mod faulty_maps;
mod memory_maps;
mod watched;

pub use self::{
    faulty_maps::{FaultyMaps, can_fail},
    memory_maps::MemoryMaps,
    watched::{Watched, check_keeps, same_attributes, same_backends, view_of},
};
