use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(15);

/// Waits between attempts, twice as long each time, and each somewhat shorter by chance, so that
/// agents that failed together do not try together.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Begins with the shortest wait.
    pub(super) const fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// How long to wait now.
    pub(super) fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.next = (self.next * 2).min(LONGEST);
        wait
    }

    /// Begins anew.
    pub(super) const fn reset(&mut self) {
        self.next = SHORTEST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_until_reset() {
        let mut backoff = Backoff::new();
        for full in [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0] {
            let wait = backoff.wait().as_secs_f64();
            assert!((full / 2.0..=full).contains(&wait), "{wait} of {full}");
        }
        backoff.reset();
        assert!(backoff.wait() <= SHORTEST);
    }
}
