//! The map that names the agent which owns the pins.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use bytemuck::Zeroable as _;
use mcs_common::{RunRecord, maps, text};

use crate::core::{
    kernel::bpf::{MappedArray, ReadOnly, ReadWrite},
    tables::{MapError, convert::string},
};

/// Who holds a bpffs directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where it writes its report.
    pub directory: PathBuf,
    /// The host name it saw.
    pub host: String,
    /// Its process id, in its own PID namespace.
    pub pid: u64,
    /// Whether it keeps the pinned map `hints` complete. Versions without that map do not.
    pub keeps_hints: bool,
    /// Whether its programs keep the pinned slots of sockets right. Versions without slots do not.
    pub keeps_slots: bool,
}

impl Run {
    /// Bytes of the longest directory in the map, with a final zero.
    pub fn max_directory_bytes() -> usize {
        RunRecord::zeroed().directory.len()
    }
}

impl fmt::Display for Run {
    /// `process 12 on node-a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// Reads who holds a bpffs directory, from [`Pins::run`](crate::core::kernel::loader::Pins::run).
pub fn read_run_record(pin: &Path) -> Result<Run, MapError> {
    let error = |error| MapError::reading(maps::RUN, "the pin", error);
    let map = MappedArray::<RunRecord, ReadOnly>::open(pin).map_err(error)?;
    let record = map.read(0).ok_or_else(|| error(io::ErrorKind::InvalidData.into()))?;
    Ok(Run {
        directory: string(&record.directory).into(),
        host: string(&record.host),
        pid: record.pid,
        keeps_hints: record.keeps_hints != 0,
        keeps_slots: record.keeps_slots != 0,
    })
}

/// Writes who holds a bpffs directory.
pub fn write_run_record(pin: &Path, run: &Run) -> Result<(), MapError> {
    let record = RunRecord {
        directory: text(&run.directory.to_string_lossy()),
        host: text(&run.host),
        pid: run.pid,
        keeps_hints: run.keeps_hints.into(),
        keeps_slots: run.keeps_slots.into(),
    };
    MappedArray::<_, ReadWrite>::open(pin)
        .and_then(|mut map| map.write(0, &record))
        .map_err(|error| MapError::reading(maps::RUN, "the pin", error))
}
