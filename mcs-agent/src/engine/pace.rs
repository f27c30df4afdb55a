//! How close together rounds may follow each other.

use std::time::{Duration, Instant};

/// The first round is due at once. One that would begin sooner than a period after the round before waits, so that it takes
/// what comes meanwhile.
#[derive(Debug, Default)]
pub(super) struct Pace {
    period: Duration,
    next: Option<Instant>,
}

impl Pace {
    /// Rounds begin at least `period` apart from now on.
    pub(super) const fn set_period(&mut self, period: Duration) {
        self.period = period;
    }

    /// A round began at `started`.
    pub(super) fn began(&mut self, started: Instant) {
        self.next = (!self.period.is_zero()).then(|| started + self.period);
    }

    /// When the next round is due.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }
}
