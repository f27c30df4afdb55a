//! A token bucket: a burst, then a rate.

use std::time::Instant;

/// The tokens of a budget.
#[derive(Debug)]
pub struct TokenBucket {
    /// Negative after an expense beyond the balance.
    tokens: f64,
    burst: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub const fn full(burst: f64, now: Instant) -> Self {
        Self { tokens: burst, burst, filled: now }
    }

    /// Adds the tokens of the time since the last call, at this rate a second.
    pub fn fill(&mut self, rate: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * rate).min(self.burst);
        self.filled = now;
    }

    /// The balance.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Takes this many tokens, even if the balance becomes negative.
    pub fn spend(&mut self, cost: f64) {
        self.tokens -= cost;
    }
}
