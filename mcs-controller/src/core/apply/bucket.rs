//! What requests cost the cluster that causes them, and the token bucket that pays: a burst, then a rate.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Action, Request};

/// Tokens are counted as the time in which they come.
#[derive(Debug)]
pub struct TokenBucket {
    full_at: Instant,
    /// How long a token takes.
    token: Duration,
    /// How long a burst takes.
    burst: Duration,
}

impl TokenBucket {
    /// A full bucket, with a rate a second.
    pub fn full(burst: u32, rate: u32, now: Instant) -> Self {
        let token = Duration::from_secs(1) / rate.max(1);
        Self { full_at: now, token, burst: token * burst }
    }

    /// How long until it has a token.
    pub fn wait(&self, now: Instant) -> Duration {
        (self.full_at.saturating_duration_since(now) + self.token).saturating_sub(self.burst)
    }

    /// Whether less than a tenth of a burst is left: each token goes as soon as it comes, or soon will.
    pub fn is_low(&self, now: Instant) -> bool {
        self.full_at.saturating_duration_since(now) > self.burst / 10 * 9
    }

    /// Whether it is full.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// Takes this many tokens, even if it has fewer.
    pub fn spend(&mut self, tokens: f64, now: Instant) {
        self.full_at = self.full_at.max(now) + self.token.mul_f64(tokens);
    }
}

/// A slice of 100 endpoints with all texts is smaller.
const TOKEN_BYTES: usize = 32 * 1024;

/// The tokens for this many bytes: one at least.
#[expect(clippy::cast_precision_loss, reason = "an object has a few megabytes")]
pub fn tokens(bytes: usize) -> f64 {
    (bytes as f64 / TOKEN_BYTES as f64).max(1.0)
}

impl Request {
    /// About how many bytes it writes. What takes something away is free: somebody has paid for it.
    pub fn bytes(&self) -> usize {
        match &self.action {
            Action::Apply { object, .. }
            | Action::Create(object)
            | Action::Replace { object, .. }
            | Action::Update(object)
            | Action::ApplyStatus(object)
            | Action::ApplyCondition(object)
            | Action::MergeStatus(object) => bytes(object),
            Action::Restrict(_) | Action::Delete { .. } => 0,
        }
    }
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(all) => all.iter().map(|one| bytes(one) + 1).sum(),
        Value::Object(all) => all.iter().map(|(key, one)| key.len() + 4 + bytes(one)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        apply::own_request,
        clusterset::{
            ImportedSlice,
            fixture::{endpoint, imported_slice},
        },
        own_cluster::OwnCluster,
        plan::Write,
    };

    #[test]
    fn a_burst_goes_at_once_and_then_a_rate_a_second() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(5, 2, start);
        let mut spent_by = |tenths: u32| {
            let now = start + Duration::from_millis(100) * tenths;
            let tries = 0..100;
            tries
                .filter(|_| {
                    bucket.wait(now).is_zero() && {
                        bucket.spend(1.0, now);
                        true
                    }
                })
                .count()
        };
        assert_eq!([0, 4, 5, 30, 100].map(&mut spent_by), [5, 0, 1, 5, 5]);
    }

    #[test]
    fn what_costs_more_than_there_is_delays_what_follows() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(5, 2, now);
        bucket.spend(9.0, now);
        assert_eq!(
            bucket.wait(now),
            Duration::from_millis(2500),
            "four are owed, and one is needed"
        );
        assert!(!bucket.is_full(now + Duration::from_millis(4499)));
        assert!(bucket.is_full(now + Duration::from_millis(4500)));
    }

    #[test]
    fn large_slices_cost_more() {
        let own = OwnCluster::new(vec![]);
        let of = |endpoints: usize| {
            let endpoints = std::iter::repeat_with(|| endpoint("10.1.0.1")).take(endpoints);
            let slice = ImportedSlice { endpoints: endpoints.collect(), ..imported_slice("east") };
            let request = own_request(&Write::ApplySlice(slice), &own, false);
            let Action::Replace { object, .. } = &request.action else { panic!("{request:?}") };
            let (json, bytes) = (object.to_string().len(), request.bytes());
            assert!(bytes.abs_diff(json) < json / 20, "{bytes} of {json}");
            tokens(bytes)
        };
        assert!((of(100) - 1.0).abs() < 0.01, "a usual slice is one token");
        assert!((3.0..6.0).contains(&of(1000)), "{}", of(1000));
    }
}
