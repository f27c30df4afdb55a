//! The command line. `run` is the agent. The other commands read its maps and programs in the kernel: they work while no
//! agent runs, and from any network namespace, with the same `--bpffs`.

mod backends;
mod cleanup;
mod run;
mod status;
pub(crate) mod view;

use std::{env, ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{
    ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::ErrorKind,
};
use mcs_kube::program::{self, OutputArgs, Style, print, shell, suggest};

pub use run::RunArgs;

use crate::core::{
    feature::{ChosenFeatures, Definition, Verb, with_flags},
    kernel::loader::Pins,
    model::ObjectKey,
    tables::MapContents,
};

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
    Backends(backends::BackendsArgs),
    /// Show agent health: hooks, devices, source, capacity, rejected objects with the reason, counters
    ///
    /// Exits with 0 if the agent runs, has read all objects and has attached its programs, else with 1.
    /// Rejected objects do not change the exit code.
    Status(ReadArgs),
    Cleanup(cleanup::CleanupArgs),
    Completion(shell::CompletionArgs),
    #[command(hide = true)]
    Man(shell::ManArgs),
}

/// Where the agent's maps and programs are pinned.
#[derive(Clone, Debug, Args)]
pub(crate) struct BpffsArg {
    /// BPF file system, or a directory in one, where the agent pins its maps and programs (in
    /// `mcs/`). Agents with different directories do not affect each other
    #[arg(long, env = "MCS_BPFFS", value_name = "DIR", default_value = "/sys/fs/bpf")]
    pub(crate) bpffs: PathBuf,
}

/// The arguments of every reading command.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) bpffs: BpffsArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The namespace of ServiceImports.
#[derive(Clone, Debug, Args)]
pub(crate) struct NamespaceArg {
    /// Only ServiceImports of this namespace; a NAME without a namespace is of it too
    #[arg(short, long, env = "MCS_NAMESPACE", value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

impl NamespaceArg {
    pub(crate) fn has(&self, import: &ObjectKey) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| **namespace == *import.namespace)
    }

    /// The import that `NAMESPACE/NAME`, or a name alone, means. Ends the process if it means none.
    pub(crate) fn import(&self, text: &str) -> ObjectKey {
        let full = match &self.namespace {
            Some(namespace) if !text.contains('/') => format!("{namespace}/{text}"),
            _ => text.to_owned(),
        };
        view::parse_key(&full).unwrap_or_else(|error| {
            let what = format!("invalid value '{text}': {error}, or give --namespace");
            Cli::command().error(ErrorKind::ValueValidation, what).exit()
        })
    }
}

/// The ServiceImports that a list of clients is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct ImportFilter {
    /// Only those of this ServiceImport; with --namespace its NAME is enough
    #[arg(value_name = "NAMESPACE/NAME")]
    pub(crate) import: Option<String>,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArg,
}

impl ImportFilter {
    /// The one import. Ends the process if the text means none.
    pub(crate) fn import(&self) -> Option<ObjectKey> {
        self.import.as_ref().map(|import| self.namespace.import(import))
    }

    /// Keeps what is of `import`, else what is of the namespace. Fails if there is no such import.
    pub(crate) fn keep<T>(
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
pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Runs the command line of the process, with these features. Usage errors exit with 2 (clap), others with 1.
pub fn main(features: &'static [Definition]) -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    let command = || command(features);
    let refuse =
        |error: clap::Error| -> ! { refuse(&error.format(&mut command()), &command(), &arguments) };
    let matches = command().try_get_matches_from(&arguments).unwrap_or_else(|error| refuse(error));
    let result = match verb(features, &matches) {
        Some((verb, flags)) => (verb.run)(features, flags),
        None => match Cli::from_arg_matches(&matches) {
            Ok(cli) => run(cli.command, features, &matches),
            Err(error) => refuse(error),
        },
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs-agent: {error:#}");
        ExitCode::FAILURE
    })
}

/// The command of a feature that is called, if it is one, with its flags.
fn verb<'a>(
    features: &'static [Definition],
    matches: &'a ArgMatches,
) -> Option<(&'static Verb, &'a ArgMatches)> {
    let (name, flags) = matches.subcommand()?;
    let mut verbs = features.iter().flat_map(|feature| feature.verbs);
    verbs.find(|verb| (verb.command)().get_name() == name).map(|verb| (verb, flags))
}

fn run(
    called: Command,
    features: &'static [Definition],
    matches: &ArgMatches,
) -> anyhow::Result<ExitCode> {
    match called {
        Command::Run(args) => {
            let flags = matches.subcommand_matches("run").cloned().unwrap_or_default();
            let misspelt = suggest::misspelt_variables(&command(features));
            run::run(*args, ChosenFeatures { list: features, flags }, &misspelt)
        }
        Command::Backends(args) => backends::run(&args, features),
        Command::Status(args) => status::run(&args, features),
        Command::Cleanup(args) => cleanup::run(&args, features),
        Command::Completion(args) => Ok(shell::complete(&args, command(features))),
        Command::Man(args) => shell::man(&args, command(features)),
    }
}

/// Prints a usage error, with the variable that the wrong value is from, and ends the process.
fn refuse(error: &clap::Error, command: &clap::Command, arguments: &[OsString]) -> ! {
    if let Some(name) = suggest::variable_of(error, command, arguments) {
        eprintln!("note: the value is from the environment variable {name}");
    }
    error.exit()
}

/// The command line. An empty environment variable counts as unset, because manifests set all of them.
fn command(features: &[Definition]) -> clap::Command {
    let verbs = features.iter().flat_map(|feature| feature.verbs);
    let command = Cli::command().mut_subcommand("run", |run| with_flags(features, run));
    program::without_empty_variables(
        verbs.fold(command, |command, verb| command.subcommand((verb.command)())),
    )
}
