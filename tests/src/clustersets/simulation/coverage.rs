//! What the histories have reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mcs_kube::reasons::{Coded as _, Reason};

use super::draw::{Section, refusals, sorts};
use crate::clustersets::play::Played;

/// What was reached.
#[derive(Default)]
pub(super) struct Coverage {
    steps: BTreeMap<String, usize>,
    answers: BTreeMap<(&'static str, u16), u64>,
    reasons: BTreeSet<String>,
    seeds: usize,
    settled: (usize, usize),
    /// Simulated time, and how long it took a CPU.
    time: (Duration, Duration),
}

impl Coverage {
    pub(super) fn note(&mut self, sections: &[Section], played: &Played, took: Duration) {
        for sort in sections.iter().flat_map(Section::sorts) {
            *self.steps.entry(sort).or_default() += 1;
        }
        for (answer, count) in played.witness.journal().answers() {
            *self.answers.entry(answer).or_default() += count;
        }
        self.reasons.extend(played.witness.reasons.iter().cloned());
        self.seeds += 1;
        let (times, parts) = played.witness.settled;
        self.settled = (self.settled.0 + times, self.settled.1 + parts);
        self.time.0 += played.time;
        self.time.1 += took;
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let (played, took) = (self.time.0.as_secs_f64(), self.time.1.as_secs_f64());
        let hours = played / 3600.0;
        let years = played / took.max(0.001) * 3600.0 / 3600.0 / 24.0 / 365.0;
        let steps: Vec<_> =
            self.steps.iter().map(|(step, count)| format!("{step} {count}")).collect();
        let answers: Vec<_> = self
            .answers
            .iter()
            .map(|((verb, code), count)| format!("{verb} {code}: {count}"))
            .collect();
        let all = || Reason::ALL.iter().map(|reason| reason.name());
        let seen: Vec<_> = all().filter(|reason| self.reasons.contains(*reason)).collect();
        let unseen: Vec<_> = all().filter(|reason| !self.reasons.contains(*reason)).collect();
        let undrawn = sorts().into_iter().filter(|sort| !self.steps.contains_key(sort));
        let unmet = refusals().filter(|(verb, code)| {
            !self.answers.iter().any(|((of, answer), _)| of == verb && answer == code)
        });
        let unmet = unmet.map(|(verb, code)| format!("{verb} {code}"));
        vec![
            format!(
                "{} seeds, {hours:.0} simulated hours in {took:.0} s of one CPU: {years:.2} years in an hour",
                self.seeds
            ),
            format!(
                "all had settled {} times, with {} imported services of one cluster in another or the same",
                self.settled.0, self.settled.1
            ),
            format!("steps: {}", steps.join(", ")),
            format!("steps of no history: {}", or_none(undrawn)),
            format!("answers: {}", answers.join(", ")),
            format!("refusals that no request has met: {}", or_none(unmet)),
            format!(
                "{} of {} reasons seen; not {}",
                seen.len(),
                seen.len() + unseen.len(),
                unseen.join(", ")
            ),
        ]
    }
}

fn or_none(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
