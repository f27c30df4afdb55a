//! The matrix of kernels and suites, as text and JSON.

use std::{collections::BTreeSet, fmt};

use serde_json::{Value, json};

use super::{
    outcome::{Outcome, Outcomes},
    suites::Suite,
};

/// A kernel.
pub(super) struct Row {
    pub(super) name: String,
    /// What was to run on it.
    pub(super) suites: Vec<Suite>,
    pub(super) outcomes: Outcomes,
}

/// Every kernel, and the suites that were asked for.
pub(super) struct Matrix<'a> {
    pub(super) rows: &'a [Row],
    pub(super) suites: &'a [Suite],
}

const NAME_WIDTH: usize = 28;
const CELL_WIDTH: usize = 22;

impl Matrix<'_> {
    pub(super) fn is_good(&self) -> bool {
        self.rows.iter().all(Row::is_good)
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let kernels: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({ "good": self.is_good(), "kernels": kernels })
    }

    fn print_outcomes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<NAME_WIDTH$}", "KERNEL")?;
        for suite in self.suites {
            write!(f, "{:<CELL_WIDTH$}", suite.name().to_uppercase())?;
        }
        writeln!(f)?;
        for row in self.rows {
            write!(f, "{:<NAME_WIDTH$}", row.title())?;
            for suite in self.suites {
                write!(f, "{:<CELL_WIDTH$}", cell(*suite, row.outcomes.suites.get(suite)))?;
            }
            writeln!(f)?;
            if let Some(trouble) = &row.outcomes.trouble {
                writeln!(f, "  {trouble}")?;
            }
        }
        Ok(())
    }

    fn print_verified(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs: BTreeSet<&String> =
            self.rows.iter().flat_map(|row| row.verified().map(|(program, _)| program)).collect();
        if programs.is_empty() {
            return Ok(());
        }
        write!(f, "\n{:<NAME_WIDTH$}", "VERIFIED INSTRUCTIONS")?;
        for row in self.rows {
            write!(f, "{:>12}", row.name)?;
        }
        writeln!(f)?;
        for program in programs {
            write!(f, "{program:<NAME_WIDTH$}")?;
            for row in self.rows {
                let count = row.verified().find(|(name, _)| *name == program);
                let count = count.map_or_else(|| "-".to_owned(), |(_, count)| count.to_string());
                write!(f, "{count:>12}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn print_skips(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.rows {
            for (suite, outcome) in &row.outcomes.suites {
                for reason in &outcome.reasons {
                    writeln!(f, "skipped on {}, {suite}: {reason}", row.name)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print_outcomes(f)?;
        self.print_verified(f)?;
        writeln!(f)?;
        self.print_skips(f)?;
        let good = self.rows.iter().filter(|row| row.is_good()).count();
        write!(f, "{good} of {} kernels pass", self.rows.len())
    }
}

impl Row {
    fn is_good(&self) -> bool {
        self.outcomes.are_good(&self.suites)
    }

    fn json(&self) -> Value {
        let suites: serde_json::Map<_, _> = self
            .outcomes
            .suites
            .iter()
            .map(|(suite, outcome)| (suite.name().to_owned(), outcome_json(outcome)))
            .collect();
        json!({
            "name": self.name,
            "release": self.outcomes.release,
            "good": self.is_good(),
            "trouble": self.outcomes.trouble,
            "suites": suites,
        })
    }

    fn title(&self) -> String {
        self.outcomes.release.clone().unwrap_or_else(|| self.name.clone())
    }

    fn verified(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.outcomes.suites.get(&Suite::Load).into_iter().flat_map(|load| &load.verified)
    }
}

fn cell(suite: Suite, outcome: Option<&Outcome>) -> String {
    let Some(outcome) = outcome else { return "-".to_owned() };
    let seconds = outcome.time.as_secs();
    let Outcome { passed, failed, skipped, .. } = outcome;
    match (outcome.status, suite) {
        (None, _) => format!("NO END after {passed}"),
        (Some(0), Suite::Load) => format!("{} programs {seconds} s", outcome.verified.len()),
        (Some(_), Suite::Load) => "FAILED".to_owned(),
        (Some(status), _) if status != 0 && *failed == 0 => format!("FAILED after {passed}"),
        (Some(_), _) => format!("{passed}/{skipped}/{failed} {seconds} s"),
    }
}

fn outcome_json(outcome: &Outcome) -> Value {
    json!({
        "passed": outcome.passed,
        "skipped": outcome.skipped,
        "failed": outcome.failed,
        "skip_reasons": outcome.reasons,
        "verified": outcome.verified,
        "status": outcome.status,
        "seconds": outcome.time.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, console: &str) -> Row {
        let mut outcomes = Outcomes::default();
        console.lines().for_each(|line| outcomes.read(line));
        outcomes.end(None);
        Row { name: name.to_owned(), suites: vec![Suite::Load, Suite::Packet], outcomes }
    }

    #[test]
    fn the_table_shows_what_is_missing() {
        let rows = [
            row(
                "5.10",
                "@mcs up 5.10.0-46\n@mcs begin load\nconnect4 2131\n@mcs end load 0\n\
                 @mcs begin packet\ntest one ... ignored (no tcx)\n@mcs end packet 0",
            ),
            row("7.2", "@mcs up 7.2.12\n@mcs begin load\n@mcs end load 1\n@mcs begin packet"),
        ];
        let suites = [Suite::Load, Suite::Packet];
        let matrix = Matrix { rows: &rows, suites: &suites };
        assert!(!matrix.is_good());
        let lines: Vec<_> =
            matrix.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        let expected = [
            "KERNEL                      LOAD                  PACKET",
            "5.10.0-46                   1 programs 0 s        0/1/0 0 s",
            "7.2.12                      FAILED                NO END after 0",
            "",
            "VERIFIED INSTRUCTIONS               5.10         7.2",
            "connect4                            2131           -",
            "",
            "skipped on 5.10, packet: no tcx",
            "1 of 2 kernels pass",
        ];
        assert_eq!(lines, expected);
        assert_eq!(matrix.json()["kernels"][0]["suites"]["packet"]["skipped"], 1);
    }
}
