//! The agent's sign of life: written by the agent, read by its programs and by the command line.

use std::{io, path::Path, time::Duration};

use mcs_common::{Liveness, maps};

use crate::{
    bpf::{MappedArray, ReadOnly, ReadWrite},
    flows::monotonic_ns,
    reconcile::MapError,
};

/// Writes that the agent is alive.
#[derive(Debug)]
pub struct LivenessWriter {
    map: MappedArray<Liveness, ReadWrite>,
    release_after: Option<Duration>,
}

impl LivenessWriter {
    /// Opens the map of [`Pins::alive`](crate::loader::Pins::alive). Programs leave the VIPs alone this long after the
    /// last sign of life; `None`: never.
    pub fn open(pin: &Path, release_after: Option<Duration>) -> Result<Self, MapError> {
        let map = MappedArray::open(pin).map_err(error)?;
        Ok(Self { map, release_after })
    }

    /// Gives a sign of life.
    pub fn report(&mut self) -> Result<(), MapError> {
        let now = monotonic_ns();
        let later = |after: Duration| {
            now.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(Liveness::NEVER))
        };
        let deadline_ns = self.release_after.map_or(Liveness::NEVER, later).min(Liveness::NEVER);
        self.map.write(0, &Liveness { deadline_ns, reported_ns: now }).map_err(error)
    }
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
    /// Reads the map of [`Pins::alive`](crate::loader::Pins::alive).
    pub fn read(pin: &Path) -> Result<Self, MapError> {
        let map = MappedArray::<Liveness, ReadOnly>::open(pin).map_err(error)?;
        let found = map.read(0).ok_or_else(|| error(io::ErrorKind::InvalidData.into()))?;
        Ok(Self::at(found, monotonic_ns()))
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
        assert_eq!(of(5_000_000_000, 6_000_000_000).release_in, Some(Duration::ZERO));
        assert_eq!(of(Liveness::NEVER, 6_000_000_000).release_in, None);
    }
}
