//! `cargo xtask test`: runs the suites and sums them up.

use std::{env, path::PathBuf, process::ExitCode};

use clap::builder::PossibleValuesParser;

use self::{
    bench::Bench,
    suites::{SKIPS_ALLOWED_IN_CI, SUITES, Suite},
    summary::Summary,
};
use crate::workspace::Workspace;

mod bench;
mod suites;
mod summary;

/// Run the test suites
///
/// All suites run, also after one has failed. Without root, those that need it are skipped, and said to be. With
/// CI=true in the environment a skip fails, unless xtask lists it as allowed there. The last line counts suites:
/// "N passed, N failed, N skipped".
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The suites to run; by default all
    #[arg(value_name = "SUITE", value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name)))]
    suites: Vec<String>,
    /// Print the suites and what they need, and run nothing
    #[arg(long)]
    list: bool,
    /// Two clusters for the end-to-end suite, which installs the agent there and removes it in the end
    /// [default: clusters of its own]
    #[arg(long, value_name = "FILE", requires = "suites")]
    kubeconfig: Vec<PathBuf>,
    /// Leave in place what the end-to-end suite has made
    #[arg(long, requires = "suites")]
    keep: bool,
    /// Arguments for each of the suites, such as a filter of its cases
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> ExitCode {
    let chosen = |suite: &&Suite| {
        args.suites.is_empty() || args.suites.iter().any(|name| name == suite.name)
    };
    let suites = SUITES.iter().filter(chosen);
    if args.list {
        suites.for_each(|suite| println!("{suite}"));
        return ExitCode::SUCCESS;
    }
    let keep = args.keep.then(|| "--keep".into());
    // The suites run in the root of the workspace.
    let path = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone()).into();
    let kubeconfigs = args.kubeconfig.iter().flat_map(|file| ["--kubeconfig".into(), path(file)]);
    let end_to_end: Vec<_> = keep.into_iter().chain(kubeconfigs).collect();
    let bench = Bench::new(workspace, &args.arguments, &end_to_end);
    let runs: Vec<_> = suites.map(|suite| bench.run(suite)).collect();

    let ci = env::var_os("CI").is_some_and(|value| value == "true");
    let summary = Summary { runs: &runs, allowed_skips: ci.then_some(SKIPS_ALLOWED_IN_CI) };
    println!("\n{summary}");
    if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
