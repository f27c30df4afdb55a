//! The command line.

mod run;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mcs_kube::{program, told};

pub use self::run::RunArgs;
use crate::probe;

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
    /// `mcs check` runs it in pods of the controller's image
    #[command(hide = true)]
    Probe(probe::ProbeCommand),
}

/// Runs the command line of the process. Usage errors exit with 2 (clap), others with 1.
pub fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches());
    let result = match cli.unwrap_or_else(|error| error.format(&mut command()).exit()).command {
        Command::Run(args) => run::run(*args),
        Command::Probe(command) => probe::run(&command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-controller: {}", told(&error));
        ExitCode::FAILURE
    })
}

/// The command line. An empty environment variable counts as unset, because manifests set all of them.
fn command() -> clap::Command {
    program::without_empty_variables(Cli::command())
}
