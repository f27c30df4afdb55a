//! `cargo xtask test`: runs the suites and sums them up.

use std::{env, fs, num::NonZero, path::PathBuf, process::ExitCode, sync::Mutex};

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use mcs_tests::cluster;

use self::{
    runner::{Finished, Prepared, Runner},
    schedule::{Event, Job},
    suites::{SKIPS_ALLOWED_IN_CI, SUITES, Suite, UNUSUAL},
    summary::{Outcome, Summary},
};
use crate::{screen::say, workspace::Workspace};

mod runner;
mod schedule;
mod suites;
mod summary;

/// How many suites run side by side: most of their time they wait.
const JOBS: NonZero<usize> = NonZero::new(3).expect("three is not zero");

/// How many lines of a failed suite's output are shown again in the end.
const LAST_LINES: usize = 40;

/// How many lines are shown of the message of each failed case, which continues with logs.
const MESSAGE_LINES: usize = 4;

/// Run the test suites
///
/// All suites run, also after one has failed: first those that use every CPU, then the others side by side. What a suite
/// prints is shown when it ends, in one piece. Without root, suites that need it are skipped. With CI=true in the
/// environment a skip fails, unless xtask lists it as allowed there. A suite that takes more than three times its budget of
/// seconds fails; tests/README.md has the budgets. The last line counts suites: "N passed, N failed, N skipped".
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
    /// The suites to run; by default all but controllers, cni, kind, upstream, features, simulation and mutants
    #[arg(value_name = "SUITE", value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name)))]
    suites: Vec<String>,
    /// Print the suites, whether they need root, and their budgets; run nothing
    #[arg(long)]
    list: bool,
    /// Try for longer: more kills and changes, all suites on all kernels, the image built twice, kind, each feature
    /// taken out, and mutants. Without budgets
    #[arg(long)]
    full: bool,
    /// How many suites run side by side, at most
    #[arg(short, long, value_name = "N", default_value_t = JOBS)]
    jobs: NonZero<usize>,
    /// Let no suite fail because of its budget, on a machine that is slow or does something else
    #[arg(long)]
    no_budgets: bool,
    /// Two clusters for the end-to-end suite, which installs the agent there and removes it in the end
    /// [default: the suite starts two]
    #[arg(long, value_name = "FILE", requires = "suites")]
    kubeconfig: Vec<PathBuf>,
    /// Leave in place what the end-to-end suite has made
    #[arg(long, requires = "suites")]
    keep: bool,
    /// Arguments for each of the suites, such as a filter of its cases. A suite accepts one filter at most
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let chosen = |suite: &&Suite| {
        if args.suites.is_empty() {
            return args.full || args.list || !UNUSUAL.contains(&suite.name);
        }
        args.suites.iter().any(|name| name == suite.name)
    };
    let suites: Vec<_> = SUITES.iter().filter(chosen).collect();
    if args.list {
        suites.iter().for_each(say);
        return Ok(ExitCode::SUCCESS);
    }
    let keep = args.keep.then(|| "--keep".into());
    // The suites run in the root of the workspace.
    let path = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone()).into();
    let kubeconfigs = args.kubeconfig.iter().flat_map(|file| ["--kubeconfig".into(), path(file)]);
    let end_to_end: Vec<_> = keep.into_iter().chain(kubeconfigs).collect();
    let mut runner = Runner::new(workspace, &args.arguments, &end_to_end);
    // Those of `cargo xtask clusters` are of this machine.
    let is_remote = |file: &PathBuf| cluster::of_kubeconfig(file).is_none();
    runner.remote = !args.kubeconfig.is_empty() && args.kubeconfig.iter().all(is_remote);
    runner.full = args.full;
    runner.budgets = args.arguments.is_empty() && !args.full && !args.no_budgets;

    let (mut runs, mut failures) = (Vec::new(), String::new());
    // What is cheap to build has run before the rest is built.
    for group in suites.chunk_by(|a, b| a.company == b.company) {
        let jobs: Vec<_> = group.iter().map(|suite| prepare(&mut runner, suite)).collect();
        let run = |(suite, prepared): &Task, crowd| {
            let prepared = prepared.lock().ok().and_then(|mut prepared| prepared.take());
            prepared.map(|prepared| runner.run(suite, prepared, crowd))
        };
        let finished = schedule::run_all(&jobs, args.jobs.get(), run, |event| show(&event));
        for Finished { run, output } in finished.into_iter().flatten() {
            if let (Outcome::Failed(_), Some(file)) = (&run.outcome, &output) {
                failures.push_str(&failure(run.suite, &String::from_utf8_lossy(&fs::read(file)?)));
            }
            runs.push(run);
        }
    }

    let ci = env::var_os("CI").is_some_and(|value| value == "true");
    let allowed_skips = ci.then_some(SKIPS_ALLOWED_IN_CI);
    let summary = Summary { builds: &runner.builds, runs: &runs, allowed_skips };
    say(format_args!("\n{failures}{summary}"));
    // For `.ci/run`, which shows it below its own table.
    fs::write(workspace.target.join("suites.txt"), format!("{failures}{summary}\n"))?;
    Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The end of what a failed suite has printed, and then the failed cases, each with its message.
fn failure(suite: &str, output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    let mut text = format!("== end of {suite}\n{}\n\n== failed in {suite}\n", last.join("\n"));
    for (number, line) in lines.iter().enumerate() {
        // So libtest-mimic and libtest begin the message of a case.
        if line.starts_with("---- ") && line.ends_with(" ----") {
            let message = lines[number..].iter().take(1 + MESSAGE_LINES);
            message.for_each(|line| text.extend([line, "\n"]));
        }
    }
    text + "\n"
}

/// A suite with its command, which is taken once.
type Task = (&'static Suite, Mutex<Option<Prepared>>);

fn prepare(runner: &mut Runner<'_>, suite: &'static Suite) -> Job<Task> {
    let prepared = runner.prepare(suite);
    Job {
        name: suite.name,
        company: suite.company,
        time: suite.budget(),
        work: (suite, Mutex::new(Some(prepared))),
    }
}

fn show(event: &Event<'_, Option<Finished>>) {
    match event {
        Event::Begun(name, false) => {
            let about = SUITES.iter().find(|suite| suite.name == *name).map(|suite| suite.about);
            say(format_args!("== {name}: {}", about.unwrap_or_default()));
        }
        Event::Begun(name, true) => say(format_args!("== {name} begins")),
        Event::Waiting(running) => say(format_args!("== running: {}", running.join(", "))),
        Event::Ended(_, None, _) => {}
        Event::Ended(name, Some(finished), running) => {
            if let Some(file) = &finished.output {
                say(format_args!("\n== {name}"));
                let text = fs::read(file).unwrap_or_default();
                say(String::from_utf8_lossy(&text).trim_end());
            }
            let still = if running.is_empty() { "" } else { "; running: " };
            say(format_args!("== {}{still}{}", finished.run, running.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_each_case_with_its_message() {
        let logs = "a line of the agent's log\n".repeat(LAST_LINES);
        let output =
            format!("failures:\n\n---- one ----\nit is not there\n{logs}\n---- two ----\nbroken\n");
        let text = failure("api", &output);
        let (_, cases) = text.split_once("== failed in api\n").unwrap();
        assert!(cases.starts_with("---- one ----\nit is not there\n"), "{cases}");
        assert!(cases.ends_with("---- two ----\nbroken\n\n"), "{cases}");
    }
}
