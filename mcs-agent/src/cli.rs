//! The command line. `run` is the agent; the others look at what it left in the kernel, and work
//! with the agent down, from any network namespace, given the same `--bpffs`.

mod backends;
mod cleanup;
mod flows;
mod output;
mod run;
mod services;
mod status;
mod view;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use run::RunArgs;

use crate::agent;

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
    /// Show how the agent stands: hooks, devices, source, capacity, what was rejected and why,
    /// counters
    ///
    /// Exits with 0 if the agent is running, synced and attached, with 1 if not. Rejected objects
    /// alone are no reason.
    Status(ReadArgs),
    Cleanup(cleanup::CleanupArgs),
    /// Used by `run` itself
    #[command(name = agent::WITNESS, hide = true)]
    Witness(agent::WitnessArgs),
}

/// Where the agent's maps and programs are pinned.
#[derive(Clone, Debug, Args)]
struct BpffsArg {
    /// BPF file system, or a directory of one, under which the agent pins its maps and programs
    /// (in `mcs/`). Agents with different directories live side by side
    #[arg(long, env = "MCS_BPFFS", value_name = "DIR", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
}

/// How a reading command prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs; fields are added, never renamed
    Json,
}

/// What every reading command takes.
#[derive(Clone, Debug, Args)]
struct ReadArgs {
    #[command(flatten)]
    bpffs: BpffsArg,
    /// How to print
    #[arg(short, long, env = "MCS_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Runs the command line of the process. Errors of use exit with 2 (clap), others with 1.
pub fn main() -> ExitCode {
    forget_empty_variables();
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(*args),
        Command::Services(args) => services::run(&args),
        Command::Backends(args) => backends::run(&args),
        Command::Flows(args) => flows::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Cleanup(args) => cleanup::run(&args),
        Command::Witness(args) => agent::testify(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-agent: {error:#}");
        ExitCode::FAILURE
    })
}

/// A variable that is set to nothing says nothing: manifests set all they know of.
fn forget_empty_variables() {
    let empty: Vec<_> = std::env::vars_os()
        .filter(|(name, value)| name.to_string_lossy().starts_with("MCS_") && value.is_empty())
        .map(|(name, _)| name)
        .collect();
    for name in empty {
        // SAFETY: no other thread has been started.
        unsafe { std::env::remove_var(name) };
    }
}
