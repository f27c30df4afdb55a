//! When the engine asks for larger maps.

use std::time::{Duration, Instant};

use super::retry::Retry;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);

/// Larger maps that could not be made are asked for again after a second, and then after twice the time each time.
#[derive(Debug)]
pub(super) struct Growth {
    retry: Retry,
    refused: Option<String>,
}

impl Default for Growth {
    fn default() -> Self {
        Self { retry: Retry::new(SHORTEST, LONGEST), refused: None }
    }
}

impl Growth {
    /// Whether larger maps may be asked for.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.retry.at().is_none_or(|at| at <= now)
    }

    /// They could not be made.
    pub(super) fn refuse(&mut self, why: String, now: Instant) -> Duration {
        self.refused = Some(why);
        self.retry.fail(now)
    }

    /// Why they could not be made the last time; `None` once they are, or nobody needs them any more.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// When they are asked for again.
    pub(super) const fn retry_at(&self) -> Option<Instant> {
        self.retry.at()
    }
}
