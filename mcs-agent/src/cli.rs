//! The command line. `run` is the agent. The other commands read its maps and programs in the kernel: they work while no
//! agent runs, and from any network namespace, with the same `--bpffs`.

mod backends;
mod cleanup;
mod cleanup_nodes;
mod explain;
mod flows;
mod run;
mod services;
mod sockets;
mod status;
mod trace;
mod view;

use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind};
use mcs_kube::program::{self, OutputArgs, Style, print, shell, suggest};

pub use run::RunArgs;

use crate::{loader::Pins, model::ObjectKey, reconcile::MapContents, verify};

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
  mcs-agent services --namespace shop --watch
  mcs-agent backends shop/cart -o json
  mcs-agent flows shop/cart
  mcs-agent sockets shop/cart
  mcs-agent explain shop/cart --probe
  mcs-agent trace shop/cart
  mcs-agent status || echo degraded
  mcs-agent cleanup

Every flag can be given by its environment variable instead, as a DaemonSet does.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunArgs>),
    Services(services::ServicesArgs),
    Backends(backends::BackendsArgs),
    Flows(flows::FlowsArgs),
    Sockets(sockets::SocketsArgs),
    Explain(explain::ExplainArgs),
    Trace(trace::TraceArgs),
    /// Show agent health: hooks, devices, source, capacity, rejected objects with the reason, counters
    ///
    /// Exits with 0 if the agent runs, has read all objects and has attached its programs, else with 1.
    /// Rejected objects do not change the exit code.
    Status(ReadArgs),
    Cleanup(cleanup::CleanupArgs),
    CleanupNodes(cleanup_nodes::CleanupNodesArgs),
    Completion(shell::CompletionArgs),
    #[command(hide = true)]
    Man(shell::ManArgs),
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

/// The arguments of every reading command.
#[derive(Clone, Debug, Args)]
struct ReadArgs {
    #[command(flatten)]
    bpffs: BpffsArg,
    #[command(flatten)]
    output: OutputArgs,
}

/// The namespace of ServiceImports.
#[derive(Clone, Debug, Args)]
struct NamespaceArg {
    /// Only ServiceImports of this namespace; a NAME without a namespace is of it too
    #[arg(short, long, env = "MCS_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
}

impl NamespaceArg {
    fn has(&self, import: &ObjectKey) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| **namespace == *import.namespace)
    }

    /// The import that `NAMESPACE/NAME`, or a name alone, means. Ends the process if it means none.
    fn import(&self, text: &str) -> ObjectKey {
        let full = match &self.namespace {
            Some(namespace) if !text.contains('/') => format!("{namespace}/{text}"),
            _ => text.to_owned(),
        };
        view::parse_key(&full).unwrap_or_else(|error| {
            let what = format!("invalid value '{text}': {error}, or give --namespace");
            command().error(ErrorKind::ValueValidation, what).exit()
        })
    }
}

/// The ServiceImports that a list of clients is about.
#[derive(Clone, Debug, Args)]
struct ImportFilter {
    /// Only those of this ServiceImport; with --namespace its NAME is enough
    #[arg(value_name = "NAMESPACE/NAME")]
    import: Option<String>,
    #[command(flatten)]
    namespace: NamespaceArg,
}

impl ImportFilter {
    /// The one import. Ends the process if the text means none.
    fn import(&self) -> Option<ObjectKey> {
        self.import.as_ref().map(|import| self.namespace.import(import))
    }

    /// Keeps what is of `import`, else what is of the namespace. Fails if there is no such import.
    fn keep<T>(
        &self,
        import: Option<&ObjectKey>,
        (contents, pins): (&MapContents, &Pins),
        all: &mut Vec<T>,
        import_of: impl Fn(&T) -> Option<&ObjectKey>,
    ) -> anyhow::Result<()> {
        if let Some(import) = import {
            view::expect_import(import, &view::frontends(view::of(contents)), pins)?;
            all.retain(|one| import_of(one) == Some(import));
        } else if self.namespace.namespace.is_some() {
            all.retain(|one| import_of(one).is_some_and(|import| self.namespace.has(import)));
        }
        Ok(())
    }
}

/// The value, or `-`.
fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Runs the command line of the process. Usage errors exit with 2 (clap), others with 1.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    let matches = command().try_get_matches_from(&arguments);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|error| refuse(&error.format(&mut command()), &arguments));
    let misspelt = suggest::misspelt_variables(&command());
    let result = match cli.command {
        Command::Run(args) => run::run(*args, &misspelt),
        Command::Services(args) => services::run(&args),
        Command::Backends(args) => backends::run(&args),
        Command::Flows(args) => flows::run(&args),
        Command::Sockets(args) => sockets::run(&args),
        Command::Explain(args) => Ok(explain::run(&args)),
        Command::Trace(args) => trace::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Cleanup(args) => cleanup::run(&args),
        Command::CleanupNodes(args) => cleanup_nodes::run(&args),
        Command::Completion(args) => Ok(shell::complete(&args, command())),
        Command::Man(args) => shell::man(&args, command()),
        Command::SelfTest(args) => verify::run_self_test(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-agent: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints a usage error, with the variable that the wrong value is from, and ends the process.
fn refuse(error: &clap::Error, arguments: &[OsString]) -> ! {
    if let Some(name) = suggest::variable_of(error, &command(), arguments) {
        eprintln!("note: the value is from the environment variable {name}");
    }
    error.exit()
}

/// The command line. An empty environment variable counts as unset, because manifests set all of them.
fn command() -> clap::Command {
    program::without_empty_variables(Cli::command())
}
