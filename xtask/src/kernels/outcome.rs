//! What came of suites, read from what they print.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::suites::Suite;

/// What came of one suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    /// Why cases were skipped.
    pub(super) reasons: BTreeSet<String>,
    /// By program.
    pub(super) verified: BTreeMap<String, u64>,
    /// Absent if it did not end.
    pub(super) status: Option<i32>,
    pub(super) time: Duration,
}

impl Outcome {
    /// Whether it ended, and everything held.
    pub(super) fn is_good(&self) -> bool {
        self.status == Some(0)
    }

    /// Takes in a line that the suite printed.
    pub(super) fn read(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (first, second, third) = (words.next(), words.next(), words.next());
        match (first, second, third) {
            (Some("ok"), Some(_), Some("s")) => self.passed += 1,
            (Some("FAILED"), Some(_), Some("s")) => self.failed += 1,
            (Some("skip"), Some(_), _) => {
                self.skipped += 1;
                let reason = line.split_once(": ").map_or(line, |(_, reason)| reason);
                self.reasons.insert(reason.to_owned());
            }
            (Some(program), Some(count), None) => {
                if let Ok(count) = count.parse() {
                    self.verified.insert(program.to_owned(), count);
                }
            }
            _ => {}
        }
    }
}

/// What came of the suites on one kernel.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// As `uname -r` says, once it was up.
    pub(super) release: Option<String>,
    pub(super) suites: BTreeMap<Suite, Outcome>,
    /// What kept the kernel from running its suites, or some of them.
    pub(super) trouble: Option<String>,
    running: Option<(Suite, Instant)>,
}

impl Outcomes {
    /// Nothing yet, on a kernel that is up.
    pub(super) fn of(release: String) -> Self {
        Self { release: Some(release), ..Self::default() }
    }

    /// Nothing at all.
    pub(super) fn prevented(error: &anyhow::Error) -> Self {
        Self { trouble: Some(format!("{error:#}")), ..Self::default() }
    }

    /// Whether every suite of these ended well.
    pub(super) fn are_good(&self, asked: &[Suite]) -> bool {
        let good = |suite| self.suites.get(suite).is_some_and(Outcome::is_good);
        self.trouble.is_none() && asked.iter().all(good)
    }

    /// A suite begins.
    pub(super) fn begin(&mut self, suite: Suite) {
        self.suites.insert(suite, Outcome::default());
        self.running = Some((suite, Instant::now()));
    }

    /// The suite that runs has ended.
    pub(super) fn end(&mut self, status: Option<i32>) {
        if let Some((suite, start)) = self.running.take() {
            let outcome = self.suites.entry(suite).or_default();
            outcome.status = status;
            outcome.time = start.elapsed();
        }
    }

    /// Takes in a line of the console.
    pub(super) fn read(&mut self, line: &str) {
        let Some(word) = line.strip_prefix("@mcs ") else {
            if let Some((suite, _)) = self.running {
                self.suites.entry(suite).or_default().read(line);
            }
            return;
        };
        let words: Vec<_> = word.split_whitespace().collect();
        match words.as_slice() {
            ["up", release] => self.release = Some((*release).to_owned()),
            ["begin", name] => {
                if let Some(suite) = Suite::named(name) {
                    self.begin(suite);
                }
            }
            ["end", _, status] => self.end(status.parse().ok()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
[    0.1] something of the kernel
@mcs up 5.10.0-46-cloud-amd64
@mcs begin load
connect4 2131
from_pod 33138
@mcs end load 0
@mcs begin packet
ok       0.01 s  one
                  a note
skip              two: needs what Linux 6.16 has
skip              three: needs what Linux 6.16 has
FAILED   0.02 s  four
    it is not so
4.0 s
1 passed, 1 failed, 2 skipped
@mcs end packet 1
@mcs begin socket
ok       0.01 s  one
";

    #[test]
    fn a_console_is_read() {
        let mut outcomes = Outcomes::default();
        CONSOLE.lines().for_each(|line| outcomes.read(line));
        assert_eq!(outcomes.release.as_deref(), Some("5.10.0-46-cloud-amd64"));
        let load = &outcomes.suites[&Suite::Load];
        assert_eq!(load.verified["from_pod"], 33_138);
        assert!(load.is_good());
        let packet = &outcomes.suites[&Suite::Packet];
        assert_eq!((packet.passed, packet.failed, packet.skipped), (1, 1, 2));
        assert_eq!(packet.reasons.iter().collect::<Vec<_>>(), ["needs what Linux 6.16 has"]);
        assert_eq!(packet.status, Some(1));
        // It did not end.
        assert_eq!(outcomes.suites[&Suite::Socket].status, None);
        assert!(outcomes.are_good(&[Suite::Load]));
        assert!(!outcomes.are_good(&[Suite::Load, Suite::Packet]));
        assert!(!outcomes.are_good(&[Suite::Load, Suite::Restart]));
    }
}
