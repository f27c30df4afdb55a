//! Current failures: the log has a line for each change, not for each attempt.

use std::collections::BTreeMap;

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
}
