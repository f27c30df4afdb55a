use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Keeps work that may be asked for all the time to a share of the time.
pub(super) struct Pace {
    rests: u32,
    longest: Duration,
    next: Instant,
}

impl Pace {
    /// Work that takes a second is followed by a rest of `rests` seconds, or of `longest` if that is less.
    pub(super) fn new(rests: u32, longest: Duration) -> Self {
        Self { rests, longest, next: Instant::now() }
    }

    /// The work has been done, and took so long.
    pub(super) fn worked(&mut self, took: Duration) {
        self.next = Instant::now() + took.saturating_mul(self.rests).min(self.longest);
    }

    /// When it may be done again.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }
}

/// The CPU time of this thread so far.
pub(super) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rests_in_proportion_up_to_a_limit() {
        let mut pace = Pace::new(3, Duration::from_secs(1));
        assert_eq!(pace.next(), Instant::now());
        for (took, rest) in [(20, 60), (300, 900), (400, 1000)] {
            pace.worked(Duration::from_millis(took));
            assert_eq!(pace.next() - Instant::now(), Duration::from_millis(rest));
        }
    }
}
