//! Services that wait for their turn, each once.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use crate::clusterset::ServiceName;

/// The delays after failures: half a second at first, twice as long each time, a minute at most.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_mins(1);

/// A queue of services. A service is at most once in it, and not handed out while it is busy.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<ServiceName>,
    queued: HashSet<ServiceName>,
    busy: HashSet<ServiceName>,
    /// Failures in a row, and when to try again.
    failed: HashMap<ServiceName, (u32, Instant)>,
    /// Services that wait until then although nothing failed.
    deferred: HashMap<ServiceName, Instant>,
}

impl Queue {
    /// Adds a service, unless it waits already.
    pub(super) fn add(&mut self, name: ServiceName) {
        if self.queued.insert(name.clone()) {
            self.waiting.push_back(name);
        }
    }

    /// The next service that is not busy.
    pub(super) fn next(&mut self) -> Option<ServiceName> {
        let place = self.waiting.iter().position(|name| !self.busy.contains(name))?;
        let name = self.waiting.remove(place)?;
        self.queued.remove(&name);
        Some(name)
    }

    /// Its writes are under way.
    pub(super) fn begin(&mut self, name: ServiceName) {
        self.busy.insert(name);
    }

    /// Its writes have ended. After a failure it comes again later.
    pub(super) fn end(&mut self, name: &ServiceName, failed: bool, now: Instant) {
        self.busy.remove(name);
        if failed {
            let failures = self.failed.get(name).map_or(0, |(failures, _)| *failures);
            let delay = FIRST_DELAY.saturating_mul(1 << failures.min(10)).min(LONGEST_DELAY);
            self.failed.insert(name.clone(), (failures + 1, now + delay));
        } else {
            self.failed.remove(name);
        }
    }

    /// The service comes again then.
    pub(super) fn defer(&mut self, name: ServiceName, until: Instant) {
        self.deferred.insert(name, until);
    }

    /// When the next deferred service comes.
    pub(super) fn next_deferred(&self) -> Option<Instant> {
        self.deferred.values().min().copied()
    }

    /// Adds the services whose delay is over.
    pub(super) fn retry(&mut self, now: Instant) {
        let deferred: Vec<_> =
            self.deferred.extract_if(|_, until| *until <= now).map(|(name, _)| name).collect();
        let failed = self
            .failed
            .iter()
            .filter(|(name, (_, at))| *at <= now && !self.busy.contains(*name))
            .map(|(name, _)| name.clone());
        let due: Vec<_> = failed.chain(deferred).collect();
        for name in due {
            self.add(name);
        }
    }

    /// The number of services that wait.
    pub(super) fn waiting(&self) -> i64 {
        i64::try_from(self.waiting.len() + self.deferred.len()).unwrap_or(i64::MAX)
    }

    /// The number of services whose writes are under way.
    pub(super) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Every service that waits, for whatever reason, or whose writes are under way.
    pub(super) fn names(&self) -> impl Iterator<Item = &ServiceName> {
        let waiting = self.waiting.iter().chain(&self.busy);
        waiting.chain(self.failed.keys()).chain(self.deferred.keys())
    }
}
