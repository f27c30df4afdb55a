//! Exports whose conditions somebody else rewrites. All controllers of a cluster share one status of a ServiceExport: two
//! that disagree would rewrite it for ever. This controller then writes less and less often.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use crate::{clusterset::ServiceName, plan::Write};

/// Rewrites that can be an upgrade or a person.
const PATIENCE: u32 = 5;
/// The delays after that: a second, twice as long each time, and ten minutes at most.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_mins(10);
/// An export is forgotten after this time without a rewrite.
const PEACE: Duration = LONGEST_DELAY.saturating_mul(2);

/// The conditions of one export.
#[derive(Debug)]
struct Contest {
    /// The conditions that were last written, as a hash.
    written: u64,
    /// The version of the export before that write. `None`: the rewrite after it is already counted.
    version: Option<String>,
    /// How often others have rewritten them.
    lost: u32,
    latest: Instant,
    /// No write before that.
    next: Instant,
}

/// The exports whose conditions were written lately.
#[derive(Debug, Default)]
pub(super) struct Contests(HashMap<ServiceName, Contest>);

impl Contests {
    /// Removes the write of conditions that somebody else rewrites too often. `version`: the present one of the export.
    /// Returns whether a contest begins.
    pub(super) fn take(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        version: &str,
        now: Instant,
    ) -> bool {
        let place = writes.iter().position(|write| matches!(write, Write::SetExportConditions(..)));
        let Some((place, Write::SetExportConditions(_, conditions))) =
            place.and_then(|place| Some((place, writes.get(place)?)))
        else {
            return false;
        };
        let mut hasher = DefaultHasher::new();
        format!("{conditions:?}").hash(&mut hasher);
        let wanted = hasher.finish();
        let contest = self.0.entry(name.clone()).or_insert_with(|| Contest {
            written: wanted,
            version: None,
            lost: 0,
            latest: now,
            next: now,
        });
        let is_lost = contest.written == wanted
            && contest.version.as_deref().is_some_and(|former| former != version);
        if is_lost {
            contest.version = None;
            contest.lost += 1;
            contest.latest = now;
            let doublings = contest.lost.saturating_sub(PATIENCE).min(16);
            let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(LONGEST_DELAY);
            contest.next = if contest.is_contested() { now + delay } else { now };
        }
        let begins = is_lost && contest.lost == PATIENCE;
        if contest.next > now {
            writes.remove(place);
        } else {
            (contest.written, contest.version) = (wanted, Some(version.to_owned()));
        }
        begins
    }

    /// The exports whose conditions may be written again. Forgets exports that nobody else writes.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ServiceName> {
        self.0.retain(|_, contest| now.saturating_duration_since(contest.latest) < PEACE);
        let due = |(name, contest): (&ServiceName, &Contest)| {
            let is_due = contest.is_contested() && contest.version.is_none() && contest.next <= now;
            is_due.then(|| name.clone())
        };
        self.0.iter().filter_map(due).collect()
    }

    /// How many exports somebody else writes too.
    pub(super) fn count(&self) -> usize {
        self.0.values().filter(|contest| contest.is_contested()).count()
    }
}

/// Who takes part in contests.
#[derive(Debug, Default)]
pub(super) struct OtherWriters {
    is_asking: bool,
    said: BTreeSet<String>,
}

/// The log names this many writers at most.
const MOST_WRITERS: usize = 16;

impl OtherWriters {
    /// Whether to ask who it is now.
    pub(super) const fn may_ask(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asking, true)
    }

    /// Notes an answer. Returns whether it is new.
    pub(super) fn note(&mut self, writer: &str) -> bool {
        self.is_asking = false;
        self.said.len() < MOST_WRITERS && self.said.insert(writer.to_owned())
    }
}

impl Contest {
    const fn is_contested(&self) -> bool {
        self.lost >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::fixture::name;

    fn conditions() -> Vec<Write> {
        vec![Write::SetExportConditions(name("shop/web"), vec![])]
    }

    /// Each second somebody else has rewritten what was written.
    #[test]
    fn a_contest_is_written_less_and_less_often() {
        let (begin, mut contests) = (Instant::now(), Contests::default());
        let (mut version, mut written, mut told) = (0, vec![], 0);
        for second in 0..7200 {
            let now = begin + Duration::from_secs(second);
            let mut writes = conditions();
            contests.due(now);
            told +=
                u32::from(contests.take(&name("shop/web"), &mut writes, &version.to_string(), now));
            if !writes.is_empty() {
                written.push(second);
                version += 2;
            }
        }
        assert_eq!((told, contests.count()), (1, 1), "it is told once");
        assert_eq!(written[..9], [0, 1, 2, 3, 4, 6, 9, 14, 23]);
        assert!(written.len() < 30, "{} writes in two hours", written.len());
        assert!(written.windows(2).all(|two| two[1] - two[0] <= 601), "{written:?}");
        let peace = begin + Duration::from_hours(2) + PEACE;
        contests.due(peace);
        assert_eq!(contests.count(), 0);
    }

    #[test]
    fn a_write_that_fails_or_was_not_seen_yet_is_no_contest() {
        let (now, mut contests) = (Instant::now(), Contests::default());
        for _ in 0..100 {
            let mut writes = conditions();
            assert!(!contests.take(&name("shop/web"), &mut writes, "7", now));
            assert_eq!(writes.len(), 1);
        }
        let mut others = vec![Write::CreateExport(name("shop/web"))];
        assert!(!contests.take(&name("shop/web"), &mut others, "8", now));
        assert_eq!((others.len(), contests.count()), (1, 0));
    }
}
