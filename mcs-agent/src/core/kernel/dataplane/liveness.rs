//! Who owns the pins: the agent's sign of life, which it writes and its programs and the command line read, and the map
//! that names the agent.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use bytemuck::Zeroable as _;
use mcs_common::{Liveness, RunRecord, maps, text};

use crate::core::{
    kernel::{
        bpf::{MappedArray, ReadOnly, ReadWrite},
        flows::monotonic_ns,
    },
    tables::{MapError, contents::string},
};

/// An agent that has not read its source extends the deadline after it has run for this long, or for half of
/// `--orphan-after` if that is less: an agent that crashes again and again must not extend it.
const STEADY: Duration = Duration::from_mins(2);

/// An agent gives a sign of life each second. Without one for this long, its control loop is stuck.
const LATE: Duration = Duration::from_secs(5);

/// Writes that the agent is alive.
#[derive(Debug)]
pub struct LivenessWriter {
    map: MappedArray<Liveness, ReadWrite>,
    release_after: Option<Duration>,
    opened_ns: u64,
}

impl LivenessWriter {
    /// Opens the map of [`Pins::alive`](crate::core::kernel::loader::Pins::alive). Programs leave the VIPs alone this long after the
    /// last sign of life; `None`: never.
    pub fn open(pin: &Path, release_after: Option<Duration>) -> Result<Self, MapError> {
        let map = MappedArray::open(pin).map_err(error)?;
        Ok(Self { map, release_after, opened_ns: monotonic_ns() })
    }

    /// Gives a sign of life. `synced`: the agent has read its source, so the maps are not as an agent before left them.
    pub fn report(&mut self, synced: bool) -> Result<(), MapError> {
        let now = monotonic_ns();
        let deadline_ns = match self.release_after {
            None => Liveness::NEVER,
            Some(after) if synced => later(now, after),
            Some(after) => {
                let found = self.map.read(0).unwrap_or(Liveness { deadline_ns: 0, reported_ns: 0 });
                unsynced_deadline(found, self.opened_ns, now, after)
            }
        };
        self.map.write(0, &Liveness { deadline_ns, reported_ns: now }).map_err(error)
    }
}

/// The deadline that an agent writes before it has read its source. Programs that have released the VIPs do not serve
/// them again: the maps may be old.
fn unsynced_deadline(found: Liveness, opened: u64, now: u64, after: Duration) -> u64 {
    // Nobody has written to a new map.
    let is_new = found.reported_ns == 0;
    let is_over = found.deadline_ns < now;
    let is_steady = now >= later(opened, STEADY.min(after / 2));
    if is_new || (is_steady && !is_over) {
        later(now, after)
    } else {
        // The agent before may have had a longer `--orphan-after`, or `--orphan=keep`.
        found.deadline_ns.min(later(now, after))
    }
}

fn later(now: u64, after: Duration) -> u64 {
    let after = u64::try_from(after.as_nanos()).unwrap_or(Liveness::NEVER);
    now.saturating_add(after).min(Liveness::NEVER)
}

/// What the map says of the agent, at the time of the read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignOfLife {
    /// The time since the agent gave it.
    pub age: Duration,
    /// The time until the programs leave the VIPs alone, zero if they do; `None` if they never do.
    pub release_in: Option<Duration>,
}

impl SignOfLife {
    /// Reads the map of [`Pins::alive`](crate::core::kernel::loader::Pins::alive).
    pub fn read(pin: &Path) -> Result<Self, MapError> {
        let map = MappedArray::<Liveness, ReadOnly>::open(pin).map_err(error)?;
        let found = map.read(0).ok_or_else(|| error(io::ErrorKind::InvalidData.into()))?;
        Ok(Self::at(found, monotonic_ns()))
    }

    /// What is wrong with a running agent that gives no sign of life; `None` if it gives them.
    pub fn missed(self) -> Option<String> {
        (self.age > LATE).then(|| {
            format!(
                "the agent runs, and has given no sign of life for {} s: it follows no change",
                self.age.as_secs()
            )
        })
    }

    fn at(found: Liveness, now: u64) -> Self {
        let since = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        let ends = found.deadline_ns != Liveness::NEVER;
        Self {
            age: since(found.reported_ns, now),
            release_in: ends.then(|| since(now, found.deadline_ns)),
        }
    }
}

fn error(error: io::Error) -> MapError {
    MapError::reading(maps::ALIVE, "the pin", error)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_let_go_at_the_deadline_or_never() {
        let of = |deadline_ns, now| {
            SignOfLife::at(Liveness { deadline_ns, reported_ns: 1_000_000_000 }, now)
        };
        let before = of(5_000_000_000, 3_000_000_000);
        assert_eq!((before.age.as_secs(), before.release_in), (2, Some(Duration::from_secs(2))));
        assert_eq!(before.missed(), None);
        let late = of(5_000_000_000, 7_000_000_000).missed().unwrap();
        assert!(late.contains("no sign of life for 6 s"), "{late}");
        assert_eq!(of(5_000_000_000, 6_000_000_000).release_in, Some(Duration::ZERO));
        assert_eq!(of(Liveness::NEVER, 6_000_000_000).release_in, None);
    }

    const SECOND: u64 = 1_000_000_000;
    const AFTER: Duration = Duration::from_mins(15);

    /// The deadline in seconds that an agent leaves which started at second 10,000 and has not read its source.
    fn unsynced(deadline: u64, reported: u64, now: u64, after: Duration) -> u64 {
        let found = Liveness { deadline_ns: deadline * SECOND, reported_ns: reported * SECOND };
        unsynced_deadline(found, 10_000 * SECOND, now * SECOND, after) / SECOND
    }

    #[test]
    fn an_agent_that_has_read_nothing_does_not_take_released_vips_back() {
        for now in [10_000, 10_119, 10_120, 20_000] {
            assert_eq!(unsynced(9_999, 9_099, now, AFTER), 9_999, "at {now}");
        }
    }

    #[test]
    fn an_agent_that_crashes_again_and_again_does_not_put_the_deadline_off() {
        assert_eq!(unsynced(10_300, 9_400, 10_000, AFTER), 10_300);
        assert_eq!(unsynced(10_300, 10_118, 10_119, AFTER), 10_300);
        // The API server is away, and the agent stays.
        assert_eq!(unsynced(10_300, 10_119, 10_120, AFTER), 11_020);
        let minute = Duration::from_mins(1);
        assert_eq!(unsynced(10_050, 10_028, 10_029, minute), 10_050);
        assert_eq!(unsynced(10_050, 10_029, 10_030, minute), 10_090);
    }

    #[test]
    fn the_deadline_of_another_agent_is_at_most_our_own() {
        assert_eq!(unsynced(0, 0, 10_000, AFTER), 10_900);
        assert_eq!(unsynced(20_000, 9_999, 10_000, AFTER), 10_900);
        let kept = Liveness { deadline_ns: Liveness::NEVER, reported_ns: 1 };
        assert_eq!(unsynced_deadline(kept, 5, 6, AFTER), 6 + 900 * SECOND);
    }
}
