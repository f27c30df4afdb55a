//! Failures that last, of which the log has a line for each change and not for each attempt, and what this cluster's
//! readers need all the time: that the Lease of its mailbox is renewed, and that what it exports is read.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The change that an attempt made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Nothing: it works as before, or fails for the same reason.
    Same,
    /// It fails, or for another reason.
    Fails,
    /// It works again.
    Recovered,
}

/// The current failures, each with the reason.
#[derive(Debug)]
pub struct Failures<K>(BTreeMap<K, String>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Failures<K> {
    /// Records the result of an attempt. `error`: why it failed, if it did.
    pub fn note(&mut self, what: K, error: Option<&str>) -> Turn {
        let Some(error) = error else {
            let former = self.0.remove(&what);
            return if former.is_some() { Turn::Recovered } else { Turn::Same };
        };
        match self.0.insert(what, error.to_owned()) {
            Some(former) if former == error => Turn::Same,
            _ => Turn::Fails,
        }
    }

    /// Why it fails, if it does.
    pub fn reason(&self, what: &K) -> Option<&str> {
        self.0.get(what).map(String::as_str)
    }

    /// Forgets failures whose keys are obsolete.
    pub fn retain(&mut self, is_tried: impl Fn(&K) -> bool) {
        self.0.retain(|what, _| is_tried(what));
    }
}

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
    fn an_outage_is_told_when_it_comes_when_it_changes_and_when_it_goes() {
        let mut failures = Failures::default();
        let mut note = |error| failures.note("west", error);
        assert_eq!(note(None), Turn::Same);
        assert_eq!([note(Some("403")), note(Some("403"))], [Turn::Fails, Turn::Same]);
        assert_eq!(note(Some("422")), Turn::Fails);
        assert_eq!([note(None), note(None)], [Turn::Recovered, Turn::Same]);
        note(Some("403"));
        failures.retain(|what| *what != "west");
        assert_eq!(failures.reason(&"west"), None);
    }

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
