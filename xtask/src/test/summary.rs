//! The outcome and the time of each suite.

use std::{fmt, time::Duration};

/// The outcome of one suite.
pub(super) struct Run {
    pub(super) suite: &'static str,
    pub(super) outcome: Outcome,
    pub(super) time: Duration,
    /// How long it is to take; `None` where it has run with filters or for longer.
    pub(super) budget: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// With what failed.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

impl Run {
    /// The same, failed if it has passed but taken more than three times its budget.
    pub(super) fn with_budget_enforced(mut self) -> Self {
        if let Some(budget) = self.budget
            && self.outcome == Outcome::Passed
            && self.time > 3 * budget
        {
            let (time, budget) = (self.time.as_secs(), budget.as_secs());
            self.outcome = Outcome::Failed(format!(
                "took {time} s, more than three times its budget of {budget} s (see tests/README.md)"
            ));
        }
        self
    }
}

/// Something that is built before suites run.
pub(super) struct Build {
    pub(super) name: &'static str,
    pub(super) time: Duration,
}

/// The table of all builds and runs; its last line counts the runs.
pub(super) struct Summary<'a> {
    pub(super) builds: &'a [Build],
    pub(super) runs: &'a [Run],
    /// The suites whose skip is no failure; `None` if that holds for all.
    pub(super) allowed_skips: Option<&'a [&'a str]>,
}

impl Summary<'_> {
    /// False if a suite failed, or was skipped where it has to run.
    pub(super) fn is_good(&self) -> bool {
        self.runs.iter().all(|run| match run.outcome {
            Outcome::Passed => true,
            Outcome::Failed(_) => false,
            Outcome::Skipped(_) => self.may_skip(run),
        })
    }

    fn may_skip(&self, run: &Run) -> bool {
        self.allowed_skips.is_none_or(|allowed| allowed.contains(&run.suite))
    }

    fn count(&self, counts: impl Fn(&Outcome) -> bool) -> usize {
        self.runs.iter().filter(|run| counts(&run.outcome)).count()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, detail) = match &self.outcome {
            Outcome::Passed => ("passed", ""),
            Outcome::Failed(what) => ("FAILED", what.as_str()),
            Outcome::Skipped(why) => ("skipped", why.as_str()),
        };
        let seconds = self.time.as_secs_f64();
        let budget = self.budget.map_or_else(String::new, |time| format!("of {}", time.as_secs()));
        let line = format!("{:<17}{word:<9}{seconds:>7.1} s {budget:<7} {detail}", self.suite);
        f.write_str(line.trim_end())
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Build { name, time } in self.builds {
            writeln!(f, "{:<17}{:<9}{:>7.1} s", name, "built", time.as_secs_f64())?;
        }
        for run in self.runs {
            writeln!(f, "{run}")?;
            if matches!(run.outcome, Outcome::Skipped(_)) && !self.may_skip(run) {
                writeln!(f, "{:<17}has to run where CI is set", run.suite)?;
            }
        }
        let passed = self.count(|outcome| matches!(outcome, Outcome::Passed));
        let failed = self.count(|outcome| matches!(outcome, Outcome::Failed(_)));
        let skipped = self.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Option<Duration> = Some(Duration::from_mins(1));

    fn passed(suite: &'static str) -> Run {
        let time = Duration::from_millis(1250);
        Run { suite, outcome: Outcome::Passed, time, budget: BUDGET }
    }

    fn failed(suite: &'static str) -> Run {
        Run { outcome: Outcome::Failed("exit status: 1".to_owned()), ..passed(suite) }
    }

    fn skipped(suite: &'static str) -> Run {
        let outcome = Outcome::Skipped("takes root".to_owned());
        Run { outcome, time: Duration::ZERO, budget: None, ..passed(suite) }
    }

    #[test]
    fn a_failure_is_never_good_and_a_skip_only_where_it_is_allowed() {
        let cases = [
            (vec![passed("unit")], None, true),
            (vec![passed("unit"), failed("demo")], None, false),
            (vec![failed("demo")], Some(["demo"].as_slice()), false),
            (vec![passed("unit"), skipped("demo")], None, true),
            (vec![passed("unit"), skipped("demo")], Some(&[]), false),
            (vec![passed("unit"), skipped("demo")], Some(&["demo"]), true),
            (vec![skipped("unit"), skipped("demo")], Some(&["demo"]), false),
        ];
        for (runs, allowed_skips, good) in cases {
            let summary = Summary { builds: &[], runs: &runs, allowed_skips };
            assert_eq!(summary.is_good(), good, "{summary}");
        }
    }

    #[test]
    fn a_suite_that_takes_three_times_its_budget_fails() {
        let cases = [(180_000, BUDGET, true), (180_001, BUDGET, false), (180_001, None, true)];
        for (milliseconds, budget, good) in cases {
            let time = Duration::from_millis(milliseconds);
            let run = Run { time, budget, ..passed("unit") }.with_budget_enforced();
            assert_eq!(run.outcome == Outcome::Passed, good, "{run}");
        }
        let late = Run { time: Duration::from_secs(181), ..failed("unit") }.with_budget_enforced();
        assert_eq!(late.outcome, Outcome::Failed("exit status: 1".to_owned()));
    }

    #[test]
    fn the_table_ends_with_the_counts() {
        let builds = [Build { name: "agent", time: Duration::from_secs(90) }];
        let runs = [passed("unit"), failed("socket"), skipped("demo")];
        let summary = Summary { builds: &builds, runs: &runs, allowed_skips: Some(&[]) };
        let expected = "\
agent            built       90.0 s
unit             passed       1.2 s of 60
socket           FAILED       1.2 s of 60   exit status: 1
demo             skipped      0.0 s         takes root
demo             has to run where CI is set
1 passed, 1 failed, 1 skipped";
        assert_eq!(summary.to_string(), expected);
    }
}
