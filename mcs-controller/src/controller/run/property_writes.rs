//! When a ClusterProperty that agents read may be written again.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How long after a write the next one may follow, at first. It doubles while writes fail or somebody else rewrites the value.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(10);

/// The ClusterProperties that agents read, by name.
#[derive(Default)]
pub(super) struct PropertyWrites(HashMap<&'static str, PropertyWrite>);

struct PropertyWrite {
    value: String,
    is_under_way: bool,
    pause: Duration,
    next_at: Instant,
}

impl PropertyWrites {
    /// Whether this value may be written now. If so, the caller begins to.
    pub(super) fn begin(&mut self, name: &'static str, value: &str, now: Instant) -> bool {
        let former = self.0.entry(name).or_insert_with(|| PropertyWrite {
            value: String::new(),
            is_under_way: false,
            pause: PAUSE,
            next_at: now,
        });
        if former.is_under_way || now < former.next_at && former.value == value {
            return false;
        }
        let pause = if former.value == value { (former.pause * 2).min(LONGEST) } else { PAUSE };
        *former = PropertyWrite {
            value: value.to_owned(),
            is_under_way: true,
            pause,
            next_at: now + pause,
        };
        true
    }

    /// A write has ended.
    pub(super) fn end(&mut self, name: &'static str) {
        if let Some(former) = self.0.get_mut(name) {
            former.is_under_way = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_is_written_less_and_less_often() {
        let (begin, mut property_writes, mut writes) =
            (Instant::now(), PropertyWrites::default(), Vec::new());
        for second in 0..100 {
            if property_writes.begin("ranges", "a", begin + Duration::from_secs(second)) {
                writes.push(second);
                property_writes.end("ranges");
            }
        }
        assert_eq!(writes, [0, 1, 3, 7, 15, 31, 63]);
        let now = begin + Duration::from_secs(100);
        assert!(property_writes.begin("ranges", "b", now), "another value goes at once");
        assert!(!property_writes.begin("ranges", "c", now), "not before that write has ended");
        property_writes.end("ranges");
        assert!(property_writes.begin("ranges", "c", now));
    }
}
