//! When to work again: after a failure, and after work that may be due all the time.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// The shortest and the longest delay.
const DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A deadline that doubles its distance with each failure. It has no jitter: nobody else writes these
/// maps.
#[derive(Debug)]
pub(super) struct Retry {
    bounds: (Duration, Duration),
    delays: ExponentialBackoff,
    at: Option<Instant>,
}

impl Default for Retry {
    fn default() -> Self {
        Self::new(DELAYS)
    }
}

impl Retry {
    /// The bounds are the first delay and the longest one.
    pub(super) fn new(bounds: (Duration, Duration)) -> Self {
        Self { bounds, delays: delays(bounds), at: None }
    }

    /// Sets the next deadline. Returns how long it is until then.
    pub(super) fn fail(&mut self, now: Instant) -> Duration {
        let delay = self.delays.next().unwrap_or(self.bounds.1);
        // backon multiplies in floating point: 100.000001ms.
        let delay = Duration::from_millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self.at = Some(now + delay);
        delay
    }

    /// Clears the deadline. The next failure begins with the shortest delay.
    pub(super) fn succeed(&mut self) {
        self.at = None;
        self.delays = delays(self.bounds);
    }

    /// The deadline, after a failure.
    pub(super) const fn at(&self) -> Option<Instant> {
        self.at
    }
}

fn delays((shortest, longest): (Duration, Duration)) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(shortest)
        .with_max_delay(longest)
        .without_max_times()
        .build()
}

/// After each piece of work, a rest in proportion to the time that it took.
#[derive(Debug)]
pub(crate) struct Throttle {
    rests: u32,
    longest: Duration,
    next: Option<Instant>,
}

impl Throttle {
    /// Work that takes a second is followed by a rest of `rests` seconds, or of `longest` if that is
    /// less.
    pub(crate) const fn new(rests: u32, longest: Duration) -> Self {
        Self { rests, longest, next: None }
    }

    /// The work ended at `now` and took so long.
    pub(crate) fn worked(&mut self, now: Instant, took: Duration) {
        self.next = Some(now + took.saturating_mul(self.rests).min(self.longest));
    }

    /// When the work may be done next. `None` before the first time: at once.
    pub(crate) const fn next(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_50_ms_to_5_s_until_a_success() {
        let (mut retry, now) = (Retry::default(), Instant::now());
        for millis in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(retry.fail(now), Duration::from_millis(millis));
            assert_eq!(retry.at(), Some(now + Duration::from_millis(millis)));
        }
        retry.succeed();
        assert_eq!(retry.at(), None);
        assert_eq!(retry.fail(now), DELAYS.0);
    }

    #[test]
    fn rests_in_proportion_up_to_a_limit() {
        let mut throttle = Throttle::new(3, Duration::from_secs(1));
        assert_eq!(throttle.next(), None);
        let now = Instant::now();
        for (took, rest) in [(20, 60), (300, 900), (400, 1000)] {
            throttle.worked(now, Duration::from_millis(took));
            assert_eq!(throttle.next(), Some(now + Duration::from_millis(rest)));
        }
    }
}
