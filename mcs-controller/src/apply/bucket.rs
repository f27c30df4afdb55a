//! A token bucket: so many at once, and so many a second after that.

use std::time::Instant;

/// What may still be spent.
#[derive(Debug)]
pub struct TokenBucket {
    /// Below zero after an expense of more than there was.
    tokens: f64,
    burst: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A full one.
    pub const fn full(burst: f64, now: Instant) -> Self {
        Self { tokens: burst, burst, filled: now }
    }

    /// Adds what the time since the last call gives, at so many tokens a second.
    pub fn fill(&mut self, rate: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * rate).min(self.burst);
        self.filled = now;
    }

    /// The tokens that are there.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Takes so many, also if there are fewer.
    pub fn spend(&mut self, cost: f64) {
        self.tokens -= cost;
    }
}
