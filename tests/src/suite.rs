//! Runs the cases of a suite by libtest-mimic, so that they are listed, filtered and reported as those of `cargo test`.
//!
//! The cases of one process share a context and run one after the other, in the order in which they are added. The first
//! case that runs makes the context; `--list` makes none. cargo-nextest starts one process for each case.

use std::{
    any::Any,
    cell::RefCell,
    collections::BTreeMap,
    env,
    error::Error,
    fmt::{self, Write as _},
    fs,
    io::{self, Write as _},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Parser;
use libtest_mimic::{Arguments, Completion, Failed, FormatSetting, Trial};
use parking_lot::Mutex;

use crate::run::Run;

/// The time of a case is printed if it is at least this long.
const WORTH_SAYING: Duration = Duration::from_secs(1);

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

static FULL: AtomicBool = AtomicBool::new(false);

/// Whether cases take all the time that they can use: `--full`.
pub fn is_full() -> bool {
    FULL.load(Ordering::Relaxed)
}

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a line to what is printed about the case that is running: what it has seen.
pub fn tell(line: impl Into<String>) {
    NOTES.lock().push(line.into());
}

/// Adds a table to what is printed about the case that is running. With `MCS_BLESS=1` it replaces the one with the same first
/// column in a file of `tests/results` too.
pub fn tell_table(table: &str, file: &str) -> anyhow::Result<()> {
    table.lines().for_each(tell);
    if env::var_os("MCS_BLESS").is_none() {
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(file);
    let text = fs::read_to_string(&path)?;
    let column = table.split_inclusive('|').take(2).collect::<String>();
    let begin = text.find(&column).context("the file has no such table")?;
    let end = text[begin..].find("\n\n").map_or(text.len(), |length| begin + length + 1);
    Ok(fs::write(path, format!("{}{table}{}", &text[..begin], &text[end..]))?)
}

/// The command line of a suite.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Try for longer: more kills, more changes, longer loads
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    libtest: Arguments,
}

/// The command line of a suite on clusters of its own.
#[derive(Debug, Parser)]
// Another group has the name of this struct.
#[group(skip)]
struct ClusterArgs {
    #[command(flatten)]
    suite: Args,
    /// Leave the clusters in place
    #[arg(long)]
    keep: bool,
}

type Body<C> = Box<dyn Fn(&mut C) -> anyhow::Result<()> + Send>;

struct Case<C> {
    name: String,
    when: When,
    body: Body<C>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// With `--full` alone.
    Full,
    /// It checks the results of all other cases.
    Last,
}

/// Cases that share a `C`, in the order of their run.
pub struct Suite<C> {
    cases: Vec<Case<C>>,
}

impl<C> Default for Suite<C> {
    fn default() -> Self {
        Self { cases: Vec::new() }
    }
}

impl<C: 'static> Suite<C> {
    /// Adds a case. It fails by an error or a panic, and is skipped by [`skip`].
    pub fn case(
        &mut self,
        name: impl Into<String>,
        body: impl Fn(&mut C) -> anyhow::Result<()> + Send + 'static,
    ) {
        self.add(When::Always, name, body);
    }

    /// Adds a case that runs with `--full` alone.
    pub fn full(
        &mut self,
        name: impl Into<String>,
        body: impl Fn(&mut C) -> anyhow::Result<()> + Send + 'static,
    ) {
        self.add(When::Full, name, body);
    }

    /// Adds a case that checks the results of all others. It is skipped if one of them does not run
    /// in the same process.
    pub fn last(
        &mut self,
        name: impl Into<String>,
        body: impl Fn(&mut C) -> anyhow::Result<()> + Send + 'static,
    ) {
        self.add(When::Last, name, body);
    }

    fn add(
        &mut self,
        when: When,
        name: impl Into<String>,
        body: impl Fn(&mut C) -> anyhow::Result<()> + Send + 'static,
    ) {
        self.cases.push(Case { name: name.into(), when, body: Box::new(body) });
    }

    /// Runs the cases as the program's arguments say, as a [`Run`] of this prefix. `begin` makes what they share.
    pub fn main(
        self,
        prefix: &'static str,
        begin: impl FnOnce(Run) -> anyhow::Result<C> + 'static,
    ) -> ExitCode {
        self.run(Args::parse(), move || {
            let run = Run::begin(prefix)?;
            let logs = run.directory().to_owned();
            Ok((begin(run)?, logs))
        })
    }

    /// Runs the cases as the program's arguments say, on clusters that stay in place with `--keep`. `begin` makes what they share,
    /// as for [`Suite::run`]; it gets whether clusters stay.
    pub fn on_clusters(
        self,
        begin: impl FnOnce(bool) -> anyhow::Result<(C, PathBuf)> + 'static,
    ) -> ExitCode {
        let ClusterArgs { suite, keep } = ClusterArgs::parse();
        self.run(suite, move || begin(keep))
    }

    /// Runs the cases that `args` choose. `begin` makes what they share, and returns where logs (`*.log`) are written:
    /// what is appended to one during a case is part of the message if the case fails.
    pub fn run(
        self,
        args: Args,
        begin: impl FnOnce() -> anyhow::Result<(C, PathBuf)> + 'static,
    ) -> ExitCode {
        let Args { full, libtest } = args;
        FULL.store(full, Ordering::Relaxed);
        // The cases share the context, and some set the affinity of the thread that they run on.
        let libtest = Arguments { test_threads: Some(1), ..libtest };
        let is_pretty = !libtest.quiet
            && !libtest.list
            && matches!(libtest.format, None | Some(FormatSetting::Pretty))
            && libtest.logfile.is_none();
        let shared: Shared<C> = Shared::Absent(Box::new(begin));
        SHARED.set(Some(Box::new(shared)));
        let all = Arc::new(AtomicBool::new(true));
        let cases = self.cases.into_iter().filter(|case| full || case.when != When::Full);
        let trials: Vec<_> = cases.map(|case| case.trial(Arc::clone(&all), is_pretty)).collect();
        all.store(!trials.iter().any(|trial| libtest.is_filtered_out(trial)), Ordering::Relaxed);
        let conclusion = libtest_mimic::run(&libtest, trials);
        // What it made is removed before the process ends.
        drop(SHARED.take());
        conclusion.exit_code()
    }
}

thread_local! {
    /// The [`Shared`] of the suite that this thread runs. It never leaves the thread: some contexts are bound to one.
    static SHARED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// What the cases of a process share.
enum Shared<C> {
    /// No case has run yet.
    Absent(Box<dyn FnOnce() -> anyhow::Result<(C, PathBuf)>>),
    /// With the directory of the logs.
    Present(C, PathBuf),
    /// With the reason why it cannot be made.
    Failed(String),
}

impl<C> Shared<C> {
    /// The context, made on the first call.
    fn get(&mut self) -> anyhow::Result<(&mut C, &Path)> {
        if let Self::Absent(_) = self {
            let absent = std::mem::replace(self, Self::Failed("it panicked".to_owned()));
            if let Self::Absent(begin) = absent {
                *self = match begin() {
                    Ok((context, logs)) => Self::Present(context, logs),
                    Err(error) => Self::Failed(format!("{error:#}")),
                };
            }
        }
        match self {
            Self::Present(context, logs) => Ok((context, logs)),
            Self::Failed(error) => Err(anyhow::anyhow!("cannot begin: {error}")),
            Self::Absent(_) => Err(anyhow::anyhow!("cannot begin")),
        }
    }
}

impl<C: 'static> Case<C> {
    fn trial(self, all: Arc<AtomicBool>, is_pretty: bool) -> Trial {
        Trial::ignorable_test(self.name.clone(), move || {
            if self.when == When::Last && !all.load(Ordering::Relaxed) {
                return Ok(Completion::ignored_with(
                    "it checks the results of all cases, and some do not run",
                ));
            }
            let start = Instant::now();
            let outcome = SHARED.with_borrow_mut(|shared| {
                let shared = shared.as_mut().and_then(|shared| shared.downcast_mut());
                self.attempt(shared.ok_or("the case does not run on the thread of its suite")?)
            });
            print_notes(start.elapsed(), is_pretty);
            outcome
        })
    }

    fn attempt(&self, shared: &mut Shared<C>) -> Result<Completion, Failed> {
        static PANICS: Mutex<String> = Mutex::new(String::new());

        // The usual hook prints at once, in the middle of the line of the case.
        panic::set_hook(Box::new(|info| {
            let _ = writeln!(PANICS.lock(), "{info}");
        }));
        let mut logged = None;
        // A failed case may leave the context unfinished, so the next cases can fail too.
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            let (context, logs) = shared.get()?;
            logged = Some((logs.to_owned(), lengths(logs)));
            (self.body)(context)
        }));
        drop(panic::take_hook());
        let panics = std::mem::take(&mut *PANICS.lock());
        outcome(result, &panics).map_err(|mut message| {
            if let Some((logs, before)) = logged {
                message.push_str(&appended(&logs, &before));
            }
            Failed::from(message)
        })
    }
}

fn outcome(
    result: Result<anyhow::Result<()>, Box<dyn Any + Send>>,
    panics: &str,
) -> Result<Completion, String> {
    match result {
        Ok(Ok(())) => Ok(Completion::Completed),
        Ok(Err(error)) => match error.downcast::<Skip>() {
            Ok(skip) => Ok(Completion::ignored_with(skip)),
            Err(error) => Err(format!("{error:#}\n{panics}")),
        },
        Err(_) => Err(panics.to_owned()),
    }
}

/// Prints the notes of the case that has just run, on separate lines between its name and its outcome.
fn print_notes(time: Duration, is_pretty: bool) {
    let mut notes = std::mem::take(&mut *NOTES.lock());
    if time >= WORTH_SAYING {
        notes.insert(0, format!("{:.1} s", time.as_secs_f64()));
    }
    if notes.is_empty() {
        return;
    }
    let lines = format!("    {}\n", notes.join("\n    "));
    // Other formats are for programs. A closed output ends no case.
    let _ = if is_pretty {
        io::stdout().write_all(format!("\n{lines}").as_bytes())
    } else {
        io::stderr().write_all(lines.as_bytes())
    };
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

/// The text that was appended to the logs of a directory since they had these lengths.
fn appended(directory: &Path, before: &BTreeMap<PathBuf, usize>) -> String {
    let mut text = String::new();
    for path in log_files(directory) {
        let content = fs::read(&path).unwrap_or_default();
        let fresh = content.get(before.get(&path).copied().unwrap_or(0)..).unwrap_or_default();
        if !fresh.is_empty() {
            let _ = writeln!(text, "-- {}", path.display());
            text.push_str(&String::from_utf8_lossy(fresh));
        }
    }
    text
}

/// Seconds from a variable of the environment; none where it is not set.
pub(crate) fn seconds_of(variable: &str) -> anyhow::Result<Duration> {
    let Ok(text) = env::var(variable) else { return Ok(Duration::ZERO) };
    let seconds = text.parse().with_context(|| format!("{variable}={text}"))?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared<C>(begin: impl FnOnce() -> anyhow::Result<(C, PathBuf)> + 'static) -> Shared<C> {
        Shared::Absent(Box::new(begin))
    }

    fn of(name: &str, body: impl Fn(&mut u32) -> anyhow::Result<()> + Send + 'static) -> Case<u32> {
        Case { name: name.to_owned(), when: When::Always, body: Box::new(body) }
    }

    #[test]
    fn a_case_ends_as_it_says() {
        let cases = [
            of("passes", |count| {
                *count += 1;
                Ok(())
            }),
            of("is skipped", |_| Err(skip("no such thing"))),
            of("returns an error", |_| anyhow::bail!("broken")),
            of("panics", |_| panic!("at the disco")),
        ];
        let mut context = shared(|| Ok((0, PathBuf::from("/nonexistent"))));
        let outcomes: Vec<_> = cases
            .iter()
            .map(|case| match case.attempt(&mut context) {
                Ok(Completion::Completed) => "passed".to_owned(),
                Ok(Completion::Ignored { reason }) => format!("skipped: {}", reason.unwrap()),
                Err(failed) => {
                    format!("failed: {}", failed.message().unwrap().lines().last().unwrap())
                }
            })
            .collect();
        let expected =
            ["passed", "skipped: no such thing", "failed: broken", "failed: at the disco"];
        assert_eq!(outcomes, expected);
        assert!(matches!(context, Shared::Present(1, _)));
    }

    #[test]
    fn the_context_is_made_once_and_only_for_a_case_that_runs() {
        static BEGUN: Mutex<u32> = Mutex::new(0);
        let begin = || -> anyhow::Result<(u32, PathBuf)> {
            *BEGUN.lock() += 1;
            Ok((0, env::temp_dir()))
        };
        let suite = || {
            let mut suite = Suite::default();
            suite.case("one", |_: &mut u32| Ok(()));
            suite.case("two", |_| Ok(()));
            suite
        };
        let run = |arguments: &[&str]| {
            let arguments = ["suite", "--quiet"].iter().chain(arguments);
            let _ = suite().run(Args::parse_from(arguments), begin);
            *BEGUN.lock()
        };
        assert_eq!(run(&["--list"]), 0);
        assert_eq!(run(&["three"]), 0);
        assert_eq!(run(&[]), 1);
        // As cargo-nextest does.
        assert_eq!(run(&["--exact", "two", "--nocapture"]), 2);
    }

    #[test]
    fn every_case_fails_where_the_context_cannot_be_made() {
        let mut context = shared(|| anyhow::bail!("no root"));
        for _ in 0..2 {
            let Err(failed) = of("any", |_| Ok(())).attempt(&mut context) else { panic!() };
            assert!(failed.message().unwrap().starts_with("cannot begin: no root"));
        }
    }

    #[test]
    fn a_failure_shows_what_was_logged_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("agent.log");
        fs::write(&log, "before\n").unwrap();
        let path = directory.path().to_owned();
        let mut context = shared(move || Ok((0, path)));
        let case = of("fails", move |_| {
            fs::write(&log, "before\nduring\n")?;
            anyhow::bail!("broken")
        });
        let Err(failed) = case.attempt(&mut context) else { panic!() };
        let message = failed.message().unwrap();
        assert!(message.starts_with("broken"), "{message}");
        assert!(message.contains("during") && !message.contains("before"), "{message}");
    }
}
