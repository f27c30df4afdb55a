//! What the histories have reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mcs_kube::reasons::{Coded as _, Reason};

use super::draw::Section;
use crate::clustersets::play::Played;

/// What was reached.
#[derive(Default)]
pub(super) struct Coverage {
    steps: BTreeMap<String, usize>,
    answers: BTreeMap<(&'static str, u16), u64>,
    reasons: BTreeSet<String>,
    seeds: usize,
    settled: (usize, usize),
    /// Simulated time, and what it took.
    time: (Duration, Duration),
}

impl Coverage {
    pub(super) fn note(&mut self, sections: &[Section], played: &Played, took: Duration) {
        for Section { marker, .. } in sections {
            let words: Vec<_> = marker.split(' ').collect();
            let step = match words[..] {
                ["refuse", of, verb, plural, _, code] => {
                    let of = if of.contains('/') { "of a peer" } else { "of all" };
                    for more in [format!("refuse {verb}"), format!("refuse {plural}")] {
                        *self.steps.entry(more).or_default() += 1;
                    }
                    format!("refuse {of}, {code}")
                }
                ["gone" | "back" | "delete", _, kind, ..] => format!("{} {kind}", words[0]),
                _ => words[0].to_owned(),
            };
            *self.steps.entry(step).or_default() += 1;
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
        vec![
            format!(
                "{} seeds, {hours:.0} simulated hours in {took:.0} s: {years:.2} years in an hour",
                self.seeds
            ),
            format!(
                "all had settled {} times, with {} imported services of one cluster in another or the same",
                self.settled.0, self.settled.1
            ),
            format!("steps: {}", steps.join(", ")),
            format!("answers: {}", answers.join(", ")),
            format!(
                "{} of {} reasons seen; not {}",
                seen.len(),
                seen.len() + unseen.len(),
                unseen.join(", ")
            ),
        ]
    }
}
