//! How the agent reads and writes the config maps, in the kernel or in memory.

use std::{fmt::Display, io};

use mcs_common::{Address, AddressKinds, FrontendKey, select::Arrays};

use super::{MapContents, NameMap, NameRecord, Step};

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
