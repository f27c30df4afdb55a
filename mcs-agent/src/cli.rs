//! The command line. `run` is the agent. The other commands read its maps and programs in the kernel: they work while no
//! agent runs, and from any network namespace, with the same `--bpffs`.

mod backends;
mod cleanup;
mod cleanup_nodes;
mod flows;
mod output;
mod run;
mod services;
mod status;
mod view;

use std::{env, ffi::OsStr, path::PathBuf, process::ExitCode};

use clap::{
    Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    builder::Resettable,
};

pub use run::RunArgs;

use crate::verify;

/// An eBPF dataplane for the Kubernetes Multi-Cluster Services API: a kube-proxy for ClusterSetIPs.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mcs-agent run --manifests /etc/mcs --cluster-id east
  mcs-agent services
  mcs-agent backends shop/cart -o json
  mcs-agent flows shop/cart
  mcs-agent status || echo degraded
  mcs-agent cleanup

Every flag can be given by its environment variable instead, as a DaemonSet does.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunArgs>),
    /// List every frontend: its ServiceImport, VIP, port, affinity, and backends by source cluster
    Services(ReadArgs),
    Backends(backends::BackendsArgs),
    Flows(flows::FlowsArgs),
    /// Show agent health: hooks, devices, source, capacity, rejected objects with the reason, counters
    ///
    /// Exits with 0 if the agent runs, has read all objects and has attached its programs, else with 1.
    /// Rejected objects do not change the exit code.
    Status(ReadArgs),
    Cleanup(cleanup::CleanupArgs),
    CleanupNodes(cleanup_nodes::CleanupNodesArgs),
    /// Used by `run` itself
    #[command(name = verify::SELF_TEST, hide = true)]
    SelfTest(verify::SelfTestArgs),
}

/// Where the agent's maps and programs are pinned.
#[derive(Clone, Debug, Args)]
struct BpffsArg {
    /// BPF file system, or a directory in one, where the agent pins its maps and programs (in
    /// `mcs/`). Agents with different directories do not affect each other
    #[arg(long, env = "MCS_BPFFS", value_name = "DIR", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
}

/// The output format of a reading command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs; fields are added, never renamed
    Json,
}

/// The arguments of every reading command.
#[derive(Clone, Debug, Args)]
struct ReadArgs {
    #[command(flatten)]
    bpffs: BpffsArg,
    /// Output format
    #[arg(short, long, env = "MCS_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Runs the command line of the process. Usage errors exit with 2 (clap), others with 1.
pub fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches());
    let result = match cli.unwrap_or_else(|error| error.format(&mut command()).exit()).command {
        Command::Run(args) => run::run(*args),
        Command::Services(args) => services::run(&args),
        Command::Backends(args) => backends::run(&args),
        Command::Flows(args) => flows::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Cleanup(args) => cleanup::run(&args),
        Command::CleanupNodes(args) => cleanup_nodes::run(&args),
        Command::SelfTest(args) => verify::run_self_test(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-agent: {error:#}");
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
