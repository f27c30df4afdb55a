//! The command line.

mod run;

use std::{env, ffi::OsStr, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, builder::Resettable};

pub use self::run::RunArgs;

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

/// Runs the command line of the process. Usage errors exit with 2 (clap), others with 1.
pub fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches());
    let result = match cli.unwrap_or_else(|error| error.format(&mut command()).exit()).command {
        Command::Run(args) => run::run(*args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-controller: {error:#}");
        ExitCode::FAILURE
    })
}

/// The command line. An empty environment variable counts as unset, because manifests set all of them.
fn command() -> clap::Command {
    without_empty_variables(Cli::command())
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| {
        name.to_string_lossy().starts_with("MCS_")
            && env::var_os(name).is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| {
            if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg }
        })
        .mut_subcommands(without_empty_variables)
}
