use std::{fmt, io};

use super::{Dump, Step};

/// The config maps, as their one writer sees them.
pub trait Maps {
    /// Does one step.
    ///
    /// # Errors
    ///
    /// The kernel's answer. The step may have taken effect all the same.
    fn write(&mut self, step: &Step) -> Result<(), MapError>;

    /// Everything the maps hold.
    fn dump(&self) -> Result<Dump, MapError>;
}

/// What was tried on a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A step, as it displays.
    Write(String),
    /// A read of an entry, or of `all`.
    Read(String),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(what) => f.write_str(what),
            Self::Read(what) => write!(f, "read {what}"),
        }
    }
}

/// A map did not do what it was asked. Displays without the kernel's answer, which is the source.
#[derive(Debug, thiserror::Error)]
#[error("map {map}: cannot {operation}")]
pub struct MapError {
    /// By its name in [`mcs_common::maps`].
    pub map: &'static str,
    /// What was tried, and on which key.
    pub operation: Operation,
    /// The kernel's answer.
    pub source: io::Error,
}

impl MapError {
    /// The step failed.
    pub fn writing(step: &Step, source: io::Error) -> Self {
        let map = step.map().unwrap_or("of maps");
        Self { map, operation: Operation::Write(step.to_string()), source }
    }

    /// The entry, or `all`, could not be read.
    pub fn reading(map: &'static str, entry: impl Into<String>, source: io::Error) -> Self {
        Self { map, operation: Operation::Read(entry.into()), source }
    }
}
