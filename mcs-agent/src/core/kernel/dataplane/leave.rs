//! What ends without an agent or without need: VIPs are handed back before the programs are removed, and the storage
//! fallback ends.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use aya::maps::{Array, Map, MapData};
use mcs_common::{Address, Counter, FrontendKey, VipMode, maps};

use super::counters;
use crate::core::kernel::bpf::{PinnedHash, into_io};

/// The fallback ends this long after the last socket without storage.
const QUIET: Duration = Duration::from_mins(10);

/// Ends the storage fallback. After one socket without storage, the programs read `udp_reverse` for every receive and
/// every direct connect. Any user can cause that by using up a socket's option memory. So the agent ends the fallback
/// when no more such sockets come.
#[derive(Debug)]
pub struct StorageFallback {
    failures: u64,
    since: Instant,
}

impl StorageFallback {
    /// Starts the wait.
    pub fn new(now: Instant) -> Self {
        Self { failures: 0, since: now }
    }

    /// Ends the fallback if it is time. Returns whether it was on.
    pub fn end_if_quiet(&mut self, state: &Path, now: Instant) -> io::Result<bool> {
        let failures = counters::read_one(state, Counter::StorageFailed)?;
        if !self.is_over(failures, now) {
            return Ok(false);
        }
        let map = MapData::from_pin(state.join(maps::STORAGE_FALLBACK)).map_err(into_io)?;
        let mut flag = Array::<_, u32>::try_from(Map::Array(map)).map_err(into_io)?;
        let was_on = flag.get(&0, 0).map_err(into_io)? != 0;
        if was_on {
            flag.set(0, 0, 0).map_err(into_io)?;
        }
        Ok(was_on)
    }

    fn is_over(&mut self, failures: u64, now: Instant) -> bool {
        if failures != self.failures {
            (self.failures, self.since) = (failures, now);
        }
        now.duration_since(self.since) >= QUIET
    }
}

/// Hands back every VIP of the maps in this directory, served or refused: the programs translate the packets of flows,
/// and pass all others. It removes the frontends, because sockets find them whatever the mode is.
/// A directory without maps counts as success.
pub fn hand_back_vips(directory: &Path) -> io::Result<()> {
    let pin = directory.join(maps::VIPS);
    if !pin.exists() {
        return Ok(());
    }
    let mut vips: PinnedHash<Address, u32> = PinnedHash::open(&pin)?;
    let mut held = Vec::new();
    vips.for_each(|vip, mode| held.extend((!VipMode::passes(mode)).then_some(vip)))?;
    held.iter().try_for_each(|vip| vips.set(vip, VipMode::HANDED_BACK))?;

    let mut frontends: PinnedHash<FrontendKey, u32> =
        PinnedHash::open(&directory.join(maps::FRONTENDS))?;
    let mut keys = Vec::new();
    frontends.for_each(|key, _| keys.push(key))?;
    keys.iter().try_for_each(|key| frontends.remove(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_no_failure_came_for_a_while() {
        let start = Instant::now();
        let mut fallback = StorageFallback::new(start);
        let cases =
            [(0, 3, false), (599, 3, false), (600, 3, true), (700, 4, false), (1300, 4, true)];
        for (seconds, failures, is_over) in cases {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(fallback.is_over(failures, now), is_over, "after {seconds} s");
        }
    }
}
