//! Parses the outcomes of suites from their output.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::suites::Suite;

/// The outcome of one suite.
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
    /// Whether a case has begun whose outcome follows on a separate line, below its notes.
    is_open: bool,
}

impl Outcome {
    /// Whether it ended, every case passed, and the console names cases or programs.
    pub(super) fn is_good(&self) -> bool {
        self.status == Some(0) && self.passed + self.skipped + self.verified.len() > 0
    }

    /// Takes in a line that the suite printed.
    pub(super) fn read(&mut self, line: &str) {
        let end = match line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ...")) {
            Some((_, end)) => {
                self.is_open = true;
                end.trim_start()
            }
            None => line,
        };
        if self.is_open && self.read_end(end) {
            self.is_open = false;
            return;
        }
        let mut words = line.split_whitespace();
        if let (Some(program), Some(count), None) = (words.next(), words.next(), words.next())
            && let Ok(count) = count.parse()
        {
            self.verified.insert(program.to_owned(), count);
        }
    }

    /// Takes in how a case ends, as libtest has it. False if `text` does not say that.
    fn read_end(&mut self, text: &str) -> bool {
        match text {
            "ok" => self.passed += 1,
            "FAILED" => self.failed += 1,
            _ => {
                let Some(rest) = text.strip_prefix("ignored") else { return false };
                self.skipped += 1;
                let reason = rest.trim_start().trim_start_matches('(');
                self.reasons.insert(reason.strip_suffix(')').unwrap_or(reason).to_owned());
            }
        }
        true
    }
}

/// The outcomes of the suites on one kernel.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// As `uname -r` says, once it was up.
    pub(super) release: Option<String>,
    pub(super) suites: BTreeMap<Suite, Outcome>,
    /// Why the kernel could not run its suites, or some of them.
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

running 4 tests
test one   ... 
    a note of two words
    and figures: 12 34
ok
test two   ... ignored (needs what Linux 6.16 has)
test three ... ignored (needs what Linux 6.16 has)
test four  ... FAILED

failures:

---- four ----
it is not so

test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 4.00s
@mcs end packet 1
@mcs begin socket
test one ... ok
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
        assert!(packet.verified.is_empty());
        assert_eq!(packet.reasons.iter().collect::<Vec<_>>(), ["needs what Linux 6.16 has"]);
        assert_eq!(packet.status, Some(1));
        // It did not end.
        assert_eq!(outcomes.suites[&Suite::Socket].status, None);
        assert!(outcomes.are_good(&[Suite::Load]));
        assert!(!outcomes.are_good(&[Suite::Load, Suite::Packet]));
        assert!(!outcomes.are_good(&[Suite::Load, Suite::Restart]));
    }
}
