//! A service whose backends alternate between two sets.

use mcs_tests::site::SetWatcher;

use crate::prelude::*;

/// It has one of two sets of backends.
pub(crate) struct Swing<'a> {
    api: &'a Api,
    site: &'a Site,
    sets: [Target; 2],
    backends: SetWatcher,
    /// Changes so far.
    turns: usize,
}

impl<'a> Swing<'a> {
    /// Creates the service, and waits until it is in the maps.
    pub(crate) fn begin(world: &'a World, name: &str) -> Result<Self> {
        Self::begin_on(world, &world.site, name)
    }

    /// The same, in the maps of another agent.
    pub(crate) fn begin_on(world: &'a World, site: &'a Site, name: &str) -> Result<Self> {
        let target = world.fresh(name);
        let sets = [&[11, 12], &[11, 13]].map(|pods| target.clone().with(pods));
        let api = &world.east.api;
        api.apply_all(&sets[0].objects())?;
        site.wait_for(&sets[0].service)?;
        let backends = site.set_of(sets[0].tcp(Family::V4))?;
        Ok(Self { api, site, sets, backends, turns: 0 })
    }

    /// Changes the backends. Returns how long it takes from the API server's answer to the map. It rests before, because a
    /// change that follows another within `--min-sync-period` waits.
    pub(crate) fn change(&mut self) -> Result<Duration> {
        const REST: Duration = Duration::from_millis(30);

        thread::sleep(REST);
        self.turns += 1;
        // IPv4 comes first.
        let slice = &self.sets[self.turns % 2].service.slices()[0];
        self.backends.time_after(|| self.api.apply(slice))
    }

    /// Makes the service what it was at first, and waits for that.
    pub(crate) fn end(self) -> Result {
        self.api.apply_all(&self.sets[0].objects())?;
        self.site.wait_for(&self.sets[0].service)
    }
}
