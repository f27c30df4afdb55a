//! What this cluster's readers need all the time: that the Lease of its mailbox is renewed, and that what it exports is read.

use std::time::{Duration, Instant};

use super::{Failures, Turn};

/// After this time without success, the conditions of exports report it. A publisher renews its Lease every 10 s.
const PATIENCE: Duration = Duration::from_mins(1);

/// The renewals of the Lease while this replica leads, or the reads.
#[derive(Debug)]
pub struct Liveness {
    /// The last success, or the beginning.
    latest: Instant,
    failures: Failures<()>,
    /// The reason in the conditions of exports. A later reason does not change all exports again.
    silence: Option<String>,
}

impl Liveness {
    /// Begins, as for a term as leader.
    pub fn new(now: Instant) -> Self {
        Self { latest: now, failures: Failures::default(), silence: None }
    }

    /// Records a success or a failure.
    pub fn note(&mut self, error: Option<&str>, now: Instant) -> Turn {
        if error.is_none() {
            self.latest = now;
        }
        self.failures.note((), error)
    }

    /// The time since the last success.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.latest)
    }

    /// Why there was no success for more than a minute.
    pub fn silence(&mut self, now: Instant) -> Option<&str> {
        if self.age(now) <= PATIENCE {
            self.silence = None;
        } else if self.silence.is_none() {
            let reason = self.failures.reason(&()).unwrap_or("its Lease is not written");
            self.silence = Some(reason.to_owned());
        }
        self.silence.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_after_a_minute_and_ends_with_a_renewal() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut mailbox = Liveness::new(begin);
        assert_eq!(mailbox.note(Some("no answer"), at(20)), Turn::Fails);
        assert_eq!(mailbox.silence(at(60)), None);
        assert_eq!(mailbox.age(at(60)), PATIENCE);
        assert_eq!(mailbox.silence(at(61)), Some("no answer"));
        mailbox.note(Some("403"), at(70));
        assert_eq!(mailbox.silence(at(71)), Some("no answer"), "exports are written once");
        assert_eq!(mailbox.note(None, at(80)), Turn::Recovered);
        assert_eq!(mailbox.silence(at(81)), None);
        assert!(mailbox.silence(at(141)).is_some(), "nobody tries");
    }
}
