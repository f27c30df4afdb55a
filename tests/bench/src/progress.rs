//! Prints the progress of the bench to standard error.

use std::{cell::Cell, fmt::Display, io::IsTerminal as _};

use crate::prelude::*;

/// Steps. Each took or takes its share of the time.
pub(crate) struct Progress {
    begin: Instant,
    shares: Vec<Duration>,
    /// When the step that is under way began; how many are behind it.
    step: Option<Instant>,
    done: usize,
    terminal: bool,
    title: String,
    /// When something was written last.
    written: Cell<Instant>,
}

/// Where lines stay, as in a log, details come at this interval at most.
const SELDOM: Duration = Duration::from_secs(20);

impl Progress {
    /// Steps are thought to take so long on a usual machine.
    pub(crate) fn new(shares: Vec<Duration>) -> Self {
        let terminal = io::stderr().is_terminal();
        let begin = Instant::now();
        let (title, written) = (String::new(), Cell::new(begin));
        Self { begin, shares, step: None, done: 0, terminal, title, written }
    }

    /// Begins the next step, and ends the one before.
    pub(crate) fn step(&mut self, title: impl Display) {
        if self.step.replace(Instant::now()).is_some() {
            self.done += 1;
        }
        self.title = title.to_string();
        self.write("", true);
    }

    /// Tells more of the step that is under way, where it is not in the way afterwards.
    pub(crate) fn detail(&self, text: impl Display) {
        if self.terminal || self.written.get().elapsed() > SELDOM {
            self.write(&format!(": {text}"), false);
        }
    }

    /// Tells what is worth to be read later.
    pub(crate) fn note(&self, text: impl Display) {
        self.write(&format!(": {text}"), true);
    }

    /// Clears the line.
    pub(crate) fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn write(&self, more: &str, stays: bool) {
        self.written.set(Instant::now());
        let spent = self.begin.elapsed();
        let in_step = self.step.map_or(Duration::ZERO, |begin| begin.elapsed());
        let left = left(&self.shares, self.done, spent, in_step);
        let line = format!("{} ({} left) {}{more}", span(spent), span(left), self.title);
        let mut stderr = io::stderr().lock();
        // Whoever does not look any more does not end the run.
        let _ = match (self.terminal, stays) {
            (true, true) => writeln!(stderr, "\r\x1b[K{line}"),
            (true, false) => write!(stderr, "\r\x1b[K{line}"),
            (false, _) => writeln!(stderr, "{line}"),
        };
        let _ = stderr.flush();
    }
}

/// The time that the remaining steps take, if they deviate from their shares as much as the steps so far.
fn left(shares: &[Duration], done: usize, spent: Duration, in_step: Duration) -> Duration {
    let total = |shares: &[Duration]| shares.iter().sum::<Duration>();
    let (behind, ahead) = shares.split_at(done.min(shares.len()));
    let thought = total(behind).as_secs_f64();
    let pace = match thought {
        0.0 => 1.0,
        thought => spent.saturating_sub(in_step).as_secs_f64() / thought,
    };
    let [current, later @ ..] = ahead else { return Duration::ZERO };
    current.mul_f64(pace).saturating_sub(in_step) + total(later).mul_f64(pace)
}

/// `m:ss`
fn span(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_goes_at_the_pace_so_far() {
        let seconds = Duration::from_secs;
        let shares = [10, 20, 30].map(seconds);
        let cases = [
            ((0, 0, 0), 60),
            ((0, 4, 4), 56),
            // As long as thought.
            ((1, 10, 0), 50),
            // Twice as long.
            ((1, 20, 0), 100),
            ((1, 30, 10), 90),
            // The step takes longer than thought.
            ((1, 60, 50), 30),
            ((3, 60, 0), 0),
        ];
        for ((done, spent, in_step), expected) in cases {
            let found = left(&shares, done, seconds(spent), seconds(in_step));
            assert_eq!(found, seconds(expected), "{done} steps in {spent} s");
        }
    }

    #[test]
    fn times_are_short() {
        assert_eq!(span(Duration::from_secs(61)), "1:01");
        assert_eq!(span(Duration::from_millis(59_900)), "0:59");
    }
}
