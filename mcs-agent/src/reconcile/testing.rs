//! Config maps in memory, with the kernel's limits and with writes that fail, for tests only.

mod faulty_maps;
mod memory_maps;

pub use self::{
    faulty_maps::{FaultyMaps, can_fail},
    memory_maps::MemoryMaps,
};
