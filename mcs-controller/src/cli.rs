//! The command line.

mod check;
mod cluster;
mod link;
mod output;
mod pod_ranges;
mod probe;
mod run;
mod status;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mcs_kube::{one_line, program};

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
  mcs-controller link east.conf west.conf
  mcs-controller check east.conf west.conf
  mcs-controller status

Every flag can be given by its environment variable instead, as a Deployment does.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunArgs>),
    Link(link::LinkCommand),
    Unlink(link::UnlinkCommand),
    Check(check::CheckCommand),
    Probe(probe::ProbeCommand),
    Status(status::StatusCommand),
}

/// Runs the command line of the process. Usage errors exit with 2 (clap), others with 1.
pub fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches());
    let result = match cli.unwrap_or_else(|error| error.format(&mut command()).exit()).command {
        Command::Run(args) => run::run(*args),
        Command::Link(command) => link::link(&command),
        Command::Unlink(command) => link::unlink(&command),
        Command::Check(command) => check::run(&command),
        Command::Probe(command) => probe::run(&command),
        Command::Status(command) => status::run(&command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-controller: {}", one_line(&format!("{error:#}")));
        ExitCode::FAILURE
    })
}

/// The command line. An empty environment variable counts as unset, because manifests set all of them.
fn command() -> clap::Command {
    program::without_empty_variables(Cli::command())
}
