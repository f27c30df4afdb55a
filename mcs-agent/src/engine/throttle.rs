//! Limits work that may be due all the time to a share of the time.

use std::time::{Duration, Instant};

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
