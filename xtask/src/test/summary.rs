//! What came of the suites.

use std::{fmt, time::Duration};

/// What came of one suite.
pub(super) struct Run {
    pub(super) suite: &'static str,
    pub(super) outcome: Outcome,
    pub(super) time: Duration,
}

pub(super) enum Outcome {
    Passed,
    /// With what failed.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// The table of all runs; its last line counts them.
pub(super) struct Summary<'a> {
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

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in self.runs {
            let (word, detail) = match &run.outcome {
                Outcome::Passed => ("passed", ""),
                Outcome::Failed(what) => ("FAILED", what.as_str()),
                Outcome::Skipped(why) => ("skipped", why.as_str()),
            };
            let seconds = run.time.as_secs_f64();
            let line = format!("{:<17}{word:<9}{seconds:>7.1} s  {detail}", run.suite);
            writeln!(f, "{}", line.trim_end())?;
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

    fn passed(suite: &'static str) -> Run {
        Run { suite, outcome: Outcome::Passed, time: Duration::from_millis(1250) }
    }

    fn failed(suite: &'static str) -> Run {
        Run { outcome: Outcome::Failed("exit status: 1".to_owned()), ..passed(suite) }
    }

    fn skipped(suite: &'static str) -> Run {
        let outcome = Outcome::Skipped("takes root".to_owned());
        Run { suite, outcome, time: Duration::ZERO }
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
            let summary = Summary { runs: &runs, allowed_skips };
            assert_eq!(summary.is_good(), good, "{summary}");
        }
    }

    #[test]
    fn the_table_ends_with_the_counts() {
        let runs = [passed("unit"), failed("socket"), skipped("demo")];
        let summary = Summary { runs: &runs, allowed_skips: Some(&[]) };
        let expected = "\
unit             passed       1.2 s
socket           FAILED       1.2 s  exit status: 1
demo             skipped      0.0 s  takes root
demo             has to run where CI is set
1 passed, 1 failed, 1 skipped";
        assert_eq!(summary.to_string(), expected);
    }
}
