//! When mailboxes beyond their limits are read again. Each time costs the API server the whole mailbox, and all readers of
//! the peer do it: so they come less and less often, and not all at once.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::core::peers::PeerName;

/// The first pause.
const FIRST: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(1);
/// A pause is longer or shorter by up to this share.
const JITTER: f64 = 0.25;

/// The mailboxes that are read again.
#[derive(Debug, Default)]
pub(super) struct ReadAgain(HashMap<PeerName, Turn>);

#[derive(Clone, Copy, Debug)]
struct Turn {
    pause: Duration,
    due: Instant,
}

impl Turn {
    fn after(pause: Duration, now: Instant) -> Self {
        let share = 1.0 + JITTER * (2.0 * fastrand::f64() - 1.0);
        Self { pause, due: now + pause.mul_f64(share) }
    }
}

impl ReadAgain {
    /// Forgets the peers whose mailboxes are within their limits.
    pub(super) fn retain(&mut self, is_over_limit: impl Fn(&PeerName) -> bool) {
        self.0.retain(|name, _| is_over_limit(name));
    }

    /// Whether the mailbox of a peer, which is beyond its limits, is to be read now. `may_fit`: so much has gone since that it
    /// may be within.
    pub(super) fn is_due(&mut self, name: &PeerName, may_fit: bool, now: Instant) -> bool {
        let turn = self.0.entry(PeerName::clone(name)).or_insert_with(|| Turn::after(FIRST, now));
        if may_fit && turn.pause > FIRST {
            *turn = Turn::after(FIRST, now);
        }
        let is_due = now >= turn.due;
        if is_due {
            *turn = Turn::after((turn.pause * 2).min(LONGEST), now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_that_stays_full_is_read_less_and_less_often() {
        let (start, peer) = (Instant::now(), PeerName::from("west"));
        let mut again = ReadAgain::default();
        let mut read_in = |minutes: std::ops::Range<u64>, may_fit| {
            let seconds = minutes.start * 60..minutes.end * 60;
            seconds
                .filter(|second| again.is_due(&peer, may_fit, start + Duration::from_secs(*second)))
                .count()
        };
        let (day, next) = (read_in(0..24 * 60, false), read_in(24 * 60..48 * 60, false));
        assert!((24..=36).contains(&day), "{day}");
        assert!((19..=32).contains(&next), "{next}: once an hour");
        assert!(read_in(48 * 60..48 * 60 + 2, true) >= 1, "something has gone");
        again.retain(|_| false);
        assert!(again.0.is_empty());
    }

    #[test]
    fn readers_do_not_come_at_once() {
        let now = Instant::now();
        let dues = (0..100).map(|_| Turn::after(LONGEST, now).due);
        let (first, last) = dues
            .fold((now + 2 * LONGEST, now), |(first, last), due| (due.min(first), due.max(last)));
        assert!(last - first > LONGEST / 4, "{:?}", last - first);
    }
}
