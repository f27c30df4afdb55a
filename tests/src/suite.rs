//! Runs a list of named cases.

use std::{
    any::Any,
    collections::BTreeMap,
    env,
    error::Error,
    fmt::{self, Write as _},
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Why a case cannot run here.
#[derive(Debug)]
struct Skip(String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Skip {}

/// What a case returns when it cannot run here.
pub fn skip(reason: impl Into<String>) -> anyhow::Error {
    Skip(reason.into()).into()
}

/// The variable that tells for how many seconds cases `fuzz: ...` try random inputs. Without it they try
/// so many.
pub const FUZZ_SECONDS: &str = "MCS_FUZZ_SECONDS";

static FULL: AtomicBool = AtomicBool::new(false);

/// Whether cases are to take all the time they want: `--full`.
pub fn is_full() -> bool {
    FULL.load(Ordering::Relaxed)
}

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a line to what is printed about the case that is running: what it has seen.
pub fn tell(line: impl Into<String>) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
}

type Body<C> = Box<dyn Fn(&mut C) -> anyhow::Result<()>>;

struct Case<C> {
    name: String,
    body: Body<C>,
}

/// Cases that share a `C`, in the order in which they run.
pub struct Suite<C> {
    cases: Vec<Case<C>>,
}

impl<C> Default for Suite<C> {
    fn default() -> Self {
        Self { cases: Vec::new() }
    }
}

/// What came of one case.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// How many cases ended how.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl<C> Suite<C> {
    /// Adds a case. It fails by an error or a panic, and is skipped by [`skip`].
    pub fn case(
        &mut self,
        name: impl Into<String>,
        body: impl Fn(&mut C) -> anyhow::Result<()> + 'static,
    ) {
        self.cases.push(Case { name: name.into(), body: Box::new(body) });
    }

    /// Runs the cases whose name contains one of the program's arguments, if there are any; `--list`
    /// lists them instead, and `--full` is what [`is_full`] tells. For `begin` see [`Suite::run`].
    pub fn main(self, begin: impl FnOnce() -> anyhow::Result<(C, PathBuf)>) -> ExitCode {
        let mut filters = Vec::new();
        let mut list = false;
        for argument in env::args().skip(1) {
            if argument == "--list" {
                list = true;
            } else if argument == "--full" {
                FULL.store(true, Ordering::Relaxed);
            } else if argument.starts_with('-') {
                eprintln!("usage: [--list] [--full] [PART OF A NAME]...");
                return ExitCode::from(2);
            } else {
                filters.push(argument);
            }
        }
        if list {
            self.list(&filters);
            return ExitCode::SUCCESS;
        }
        self.run(&filters, begin)
    }

    /// Prints the names of the cases that contain one of `filters`, or of all if there are none.
    pub fn list(&self, filters: &[String]) {
        let names = self.cases.iter().map(|case| &case.name);
        names.filter(|name| is_chosen(name, filters)).for_each(|name| println!("{name}"));
    }

    /// Runs the cases whose name contains one of `filters`, or all if there are none. `begin` makes what they share and tells where
    /// logs (`*.log`) are written: what is appended to one during a case is shown if the case fails.
    pub fn run(
        mut self,
        filters: &[String],
        begin: impl FnOnce() -> anyhow::Result<(C, PathBuf)>,
    ) -> ExitCode {
        self.cases.retain(|case| is_chosen(&case.name, filters));
        match begin() {
            Ok((mut context, logs)) => self.run_all(&mut context, &logs),
            Err(error) => {
                println!("cannot begin: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn run_all(&self, context: &mut C, logs: &Path) -> ExitCode {
        let start = Instant::now();
        let mut tally = Tally::default();
        for case in &self.cases {
            let logged = lengths(logs);
            let begin = Instant::now();
            let outcome = attempt(case, context);
            report(&case.name, begin.elapsed(), &outcome);
            match outcome {
                Outcome::Passed => tally.passed += 1,
                Outcome::Skipped(_) => tally.skipped += 1,
                Outcome::Failed(_) => {
                    tally.failed += 1;
                    show_logs(logs, &logged);
                }
            }
        }
        println!("\n{:.1} s\n{tally}", start.elapsed().as_secs_f64());
        if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn is_chosen(name: &str, filters: &[String]) -> bool {
    filters.is_empty() || filters.iter().any(|filter| name.contains(filter))
}

fn attempt<C>(case: &Case<C>, context: &mut C) -> Outcome {
    static PANICS: Mutex<String> = Mutex::new(String::new());

    // The usual hook prints at once, among the lines of other cases.
    panic::set_hook(Box::new(|info| {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(panics, "{info}");
    }));
    // What a case leaves half done in the context can fail the next cases, which is to be seen.
    let result = panic::catch_unwind(AssertUnwindSafe(|| (case.body)(context)));
    drop(panic::take_hook());
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner));
    outcome(result, panics)
}

fn outcome(result: Result<anyhow::Result<()>, Box<dyn Any + Send>>, panics: String) -> Outcome {
    match result {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(error)) => match error.downcast::<Skip>() {
            Ok(skip) => Outcome::Skipped(skip.0),
            Err(error) => Outcome::Failed(format!("{error:#}\n{panics}")),
        },
        Err(_) => Outcome::Failed(panics),
    }
}

fn report(name: &str, time: Duration, outcome: &Outcome) {
    let notes = std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner));
    let seconds = time.as_secs_f64();
    match outcome {
        Outcome::Passed => println!("ok     {seconds:>6.2} s  {name}"),
        Outcome::Skipped(reason) => println!("skip              {name}: {reason}"),
        Outcome::Failed(what) => {
            println!("FAILED {seconds:>6.2} s  {name}");
            what.trim_end().lines().for_each(|line| println!("    {line}"));
        }
    }
    for line in notes {
        println!("                  {line}");
    }
}

fn log_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    files.sort();
    files
}

fn lengths(directory: &Path) -> BTreeMap<PathBuf, usize> {
    let length = |path: &PathBuf| fs::metadata(path).map_or(0, |file| file.len());
    let file = |path| (usize::try_from(length(&path)).unwrap_or(0), path);
    log_files(directory).into_iter().map(file).map(|(length, path)| (path, length)).collect()
}

fn show_logs(directory: &Path, before: &BTreeMap<PathBuf, usize>) {
    for path in log_files(directory) {
        let text = fs::read(&path).unwrap_or_default();
        let fresh = text.get(before.get(&path).copied().unwrap_or(0)..).unwrap_or_default();
        if !fresh.is_empty() {
            println!("    -- {}", path.display());
            String::from_utf8_lossy(fresh).lines().for_each(|line| println!("    {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_ends_as_it_says() {
        let mut suite = Suite::<u32>::default();
        suite.case("passes", |count| {
            *count += 1;
            Ok(())
        });
        suite.case("is skipped", |_| Err(skip("no such thing")));
        suite.case("returns an error", |_| anyhow::bail!("broken"));
        suite.case("panics", |_| panic!("at the disco"));
        let mut count = 0;
        let outcomes: Vec<_> = suite
            .cases
            .iter()
            .map(|case| match attempt(case, &mut count) {
                Outcome::Passed => "passed".to_owned(),
                Outcome::Skipped(reason) => format!("skipped: {reason}"),
                Outcome::Failed(what) => format!("failed: {}", what.lines().last().unwrap()),
            })
            .collect();
        let expected =
            ["passed", "skipped: no such thing", "failed: broken", "failed: at the disco"];
        assert_eq!(outcomes, expected);
        assert_eq!(count, 1);
    }
}
