//! Bad days: histories that are drawn from a seed, and what must hold in each.
//!
//! A drawn history is a story. One that shows a fault is shortened, printed, and written into a file that
//! `cargo run --package mcs-tests --bin clustersets` can play if it is in `tests/clustersets`.

mod coverage;
mod draw;
mod rounds;
mod shorten;

use std::{
    cell::RefCell,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

use self::{
    coverage::Coverage,
    draw::{Section, history, text},
    shorten::shorten,
};
use super::{
    Story,
    play::{OutOfTime, Played, play_with, weighed},
    witness::{Broken, Invariant, Witness},
};
use crate::suite::{Args, Suite, tell};

/// Seeds that have shown a fault once, and some that reach much.
const CORPUS: &[u64] = &[1, 2, 3, 4, 5, 6, 7, 8, 39_896_716];
/// How many of them are played twice.
const TWICE: usize = 4;
/// How long a history may be shortened if nobody says how long to play.
const SHORTENING: Duration = Duration::from_mins(2);
/// How long new seeds are played with `--full`.
const FULL: u64 = 3600;

#[derive(Parser)]
struct Options {
    /// Play this seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// How long to play new seeds
    #[arg(long)]
    seconds: Option<u64>,
    #[command(flatten)]
    suite: Args,
}

/// Plays histories. `held`: how many bytes this thread has.
pub fn main(held: fn() -> u64) -> ExitCode {
    let Options { seed, seconds, suite: args } = Options::parse();
    let mut suite = Suite::<Coverage>::default();
    if let Some(seed) = seed {
        suite.case(format!("seed {seed}"), move |coverage| one(seed, None, coverage));
        suite.case("one seed is one history", move |_| same_twice(seed));
    } else {
        suite.case("seeds of the corpus", |coverage| {
            CORPUS.iter().try_for_each(|seed| one(*seed, None, coverage))
        });
        match seconds {
            Some(seconds) => suite.case("new seeds", move |coverage| new_seeds(seconds, coverage)),
            None => suite.full("new seeds", |coverage| new_seeds(FULL, coverage)),
        }
        suite.case("what a controller keeps is bounded", move |_| rounds::check(held));
        suite.case("one seed is one history", |_| {
            CORPUS.iter().take(TWICE).try_for_each(|seed| same_twice(*seed))
        });
    }
    suite.last("coverage", |coverage| {
        coverage.lines().into_iter().for_each(tell);
        Ok(())
    });
    suite.run(args, || Ok((Coverage::default(), PathBuf::from(env!("CARGO_MANIFEST_DIR")))))
}

fn new_seeds(seconds: u64, coverage: &mut Coverage) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seeds = fastrand::Rng::new();
    let mut failures = Vec::new();
    while Instant::now() < end {
        if let Err(error) = one(seeds.u64(1000..u64::from(u32::MAX)), Some(end), coverage) {
            failures.push(format!("{error:#}"));
        }
        if failures.len() == 3 {
            break;
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

/// Plays the history of a seed, until this time at the latest.
fn one(seed: u64, end: Option<Instant>, coverage: &mut Coverage) -> anyhow::Result<()> {
    let sections = history(seed);
    let begin = of_cpu();
    let played = play(&sections, end)?;
    coverage.note(&sections, &played, of_cpu().saturating_sub(begin));
    let failure = played.failure.filter(|(_, error)| !error.is::<OutOfTime>());
    let Some((line, error)) = failure else { return Ok(()) };
    let invariant = broken(&error);
    let end = end.unwrap_or_else(|| Instant::now() + SHORTENING);
    let said = RefCell::new(error);
    let shortened = shorten(&sections, line, end, |sections| {
        let same = fails_alike(sections, end, invariant);
        same.map(|error| said.replace(error)).is_some()
    });
    let path = write(seed, &shortened)?;
    let error = said.into_inner();
    let text = text(&shortened);
    bail!("seed {seed}: {error:#}\nthe history, in {}:\n{text}", path.display())
}

/// How long this thread has had a CPU.
fn of_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn play(sections: &[Section], end: Option<Instant>) -> anyhow::Result<Played> {
    let story = Story::parse(Path::new("drawn"), &text(sections))?;
    play_with(&story, Witness::default(), end)
}

/// What is said of a history that shows the same fault.
fn fails_alike(
    sections: &[Section],
    end: Instant,
    invariant: Option<Invariant>,
) -> Option<anyhow::Error> {
    let (_, error) = play(sections, Some(end)).ok()?.failure?;
    (broken(&error) == invariant && !error.is::<OutOfTime>()).then_some(error)
}

fn broken(error: &anyhow::Error) -> Option<Invariant> {
    error.downcast_ref::<Broken>().map(|broken| broken.invariant)
}

/// Writes a story beside the build.
fn write(seed: u64, sections: &[Section]) -> anyhow::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).context("the program is in no directory")?;
    let directory = target.join("simulation");
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{seed}.txt"));
    fs::write(&path, text(sections))?;
    Ok(path)
}

fn same_twice(seed: u64) -> anyhow::Result<()> {
    let sections = history(seed);
    let story = Story::parse(Path::new("drawn"), &text(&sections))?;
    let journal =
        || anyhow::Ok(play_with(&story, Witness::with_lines(), None)?.witness.journal().clone());
    let (first, second) = (journal()?, journal()?);
    tell(format!("the history of seed {seed}: {:016x}", first.hash()));
    if first.hash() != second.hash() {
        let (first, second) = (first.lines(), second.lines());
        let at =
            first.iter().zip(&second).position(|(one, other)| one != other).unwrap_or_default();
        bail!("seed {seed} has two histories:\n{:?}\n{:?}", first.get(at), second.get(at));
    }
    Ok(())
}
