//! What the cases have seen, as a table.

use std::fmt::Write as _;

use crate::prelude::*;

/// The table of controllers is there.
const LIMITS: &str = include_str!("../../../../deploy/limits.md");

/// A line of the table.
pub(crate) struct Row {
    program: String,
    of_limits: &'static str,
    change: &'static str,
    seen: String,
    time: Duration,
}

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("what was seen, as a table", print);
}

impl World {
    /// Notes what was seen after a change, and how long it took. `of_limits` is the row of `deploy/limits.md`.
    pub(crate) fn saw(
        &mut self,
        of_limits: &'static str,
        change: &'static str,
        seen: impl Into<String>,
        time: Duration,
    ) -> Result {
        ensure!(LIMITS.contains(&format!("\n| {of_limits}")), "limits.md has no row {of_limits}");
        let (program, seen) = (self.stage()?.program.clone(), seen.into());
        tell(format!("{change}: {seen} ({:.1} s)", time.as_secs_f64()));
        self.rows.push(Row { program, of_limits, change, seen, time });
        Ok(())
    }
}

/// Prints the table. With `MCS_BLESS=1` it is written into `tests/results/controllers.md` too.
fn print(world: &mut World) -> Result {
    if world.rows.is_empty() {
        return Err(skip("no case has seen anything"));
    }
    let mut table = "| controller | row of limits.md | what happened | what was seen | s |\n\
                     |---|---|---|---|---|\n"
        .to_owned();
    for Row { program, of_limits, change, seen, time } in &world.rows {
        let of_limits = of_limits.split(" (").next().unwrap_or_default();
        let seconds = time.as_secs_f64();
        writeln!(table, "| {program} | {of_limits} | {change} | {seen} | {seconds:.0} |")?;
    }
    tell_table(&table, "controllers.md")
}
