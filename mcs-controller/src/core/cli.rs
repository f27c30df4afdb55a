//! The command line.

mod run;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mcs_kube::{program, told};
use tokio::sync::watch;

pub use self::run::RunArgs;
use super::{
    clock::{SKEW, Skew},
    feature::Entry,
};

/// A controller for the Kubernetes Multi-Cluster Services API: a Service that one cluster exports is available in all.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mcs-controller run --kubeconfig /etc/kubernetes/controller.conf --cluster-id east

Every flag can be given by its environment variable instead, as a Deployment does.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunArgs>),
}

/// Runs the command line of the process with these features. Usage errors exit with 2 (clap), others with 1.
pub fn main(features: &[Entry]) -> ExitCode {
    let matches = command(features).get_matches();
    run_by(features, &matches).unwrap_or_else(|error| {
        eprintln!("mcs-controller: {}", told(&error));
        ExitCode::FAILURE
    })
}

/// Does what `run` does with these flags, without signals, logs and HTTP, until it is `stopped`: for tests, which play
/// several controllers in one thread, each with a clock that may be wrong.
pub async fn play(
    features: &[Entry],
    flags: &[String],
    skew: Skew,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let words = ["mcs-controller", "run"].into_iter().chain(flags.iter().map(String::as_str));
    let matches = command(features).try_get_matches_from(words)?;
    let Command::Run(args) = Cli::from_arg_matches(&matches)?.command;
    let matches = matches.subcommand_matches("run").unwrap_or(&matches);
    SKEW.scope(skew, run::play(*args, features, matches, stopped)).await
}

fn run_by(features: &[Entry], matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    for verb in features.iter().filter_map(|entry| entry.verb) {
        if let Some(matches) = matches.subcommand_matches((verb.command)().get_name()) {
            return (verb.run)(matches);
        }
    }
    let cli = Cli::from_arg_matches(matches);
    let cli = cli.unwrap_or_else(|error| error.format(&mut command(features)).exit());
    let Command::Run(args) = cli.command;
    run::run(*args, features, matches.subcommand_matches("run").unwrap_or(matches))
}

/// The command line. An empty environment variable counts as unset, because manifests set all of them.
fn command(features: &[Entry]) -> clap::Command {
    let run = |run| features.iter().fold(run, |run, entry| (entry.flags)(run));
    let commands = features.iter().filter_map(|entry| Some((entry.verb?.command)()));
    let command = Cli::command().mut_subcommand("run", run).subcommands(commands);
    program::without_empty_variables(command)
}
