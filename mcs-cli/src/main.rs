//! mcs: the command line of a clusterset. It links clusters, checks them, and shows imports, with the rights of the given
//! kubeconfigs.

mod agent_pod;
mod bundle;
mod check;
mod cluster;
mod contexts;
mod corefile;
mod dns;
mod draft;
mod drain;
mod exit;
mod explain;
mod fleet;
mod kubeconfig;
mod link;
mod pod_ranges;
mod progress;
mod services;
mod settings;
mod status;
mod tool;
mod trace;
mod ui;
mod up;
mod wait;

use std::{env, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mcs_controller::features::probe_command;
use mcs_kube::{program, program::shell, told};

/// Services that span Kubernetes clusters: link clusters, check them, and see what is imported.
#[derive(Debug, Parser)]
#[command(name = "mcs", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mcs up --context east --context west
  mcs invite west --context east --output east-for-west.yaml
  mcs check east.conf west.conf
  mcs status
  mcs services
  mcs explain shop/cart
  mcs explain -n shop web-7d9c cart
  mcs trace shop/cart --verdict refused

As `kubectl-mcs` in the PATH it is `kubectl mcs` too.

Exit codes:
  0  everything is as it should be
  1  something is wrong; the output says what to do
  2  the command line is wrong
  3  a cluster or a kubeconfig could not be asked";

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::UpCommand),
    Down(up::DownCommand),
    Dns(dns::DnsCommand),
    Link(link::LinkCommand),
    Invite(link::InviteCommand),
    Join(link::JoinCommand),
    Rotate(link::RotateCommand),
    Unlink(link::UnlinkCommand),
    Forget(link::ForgetCommand),
    Drain(drain::DrainCommand),
    Undrain(drain::UndrainCommand),
    Check(check::CheckCommand),
    Status(status::StatusCommand),
    Services(services::ServicesCommand),
    Explain(explain::ExplainCommand),
    Trace(trace::TraceCommand),
    Ui(ui::UiCommand),
    Bundle(bundle::BundleCommand),
    Probe(probe_command::ProbeCommand),
    Completion(shell::CompletionArgs),
    #[command(hide = true)]
    Man(shell::ManArgs),
}

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches());
    let result = match cli.unwrap_or_else(|error| error.format(&mut command()).exit()).command {
        Command::Up(command) => up::up(&command),
        Command::Down(command) => up::down(&command),
        Command::Dns(command) => dns::run(&command),
        Command::Link(command) => link::link(command),
        Command::Invite(command) => link::invite(&command),
        Command::Join(command) => link::join(&command),
        Command::Rotate(command) => link::rotate(command),
        Command::Unlink(command) => link::unlink(&command),
        Command::Forget(command) => link::forget(&command),
        Command::Drain(command) => drain::drain(&command),
        Command::Undrain(command) => drain::undrain(&command),
        Command::Check(command) => check::run(&command),
        Command::Status(command) => status::run(&command),
        Command::Services(command) => services::run(&command),
        Command::Explain(command) => explain::run(&command),
        Command::Trace(command) => trace::run(&command),
        Command::Ui(command) => ui::run(&command),
        Command::Bundle(command) => bundle::run(&command),
        Command::Probe(command) => probe_command::run(&command),
        Command::Completion(args) => Ok(shell::complete(&args, command())),
        Command::Man(args) => shell::man(&args, command()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("mcs: {}", told(&error));
        if is_unasked(&error) { exit::UNASKED.into() } else { ExitCode::FAILURE }
    })
}

/// Whether a command has failed because a kubeconfig or a cluster did not answer.
fn is_unasked(error: &anyhow::Error) -> bool {
    if let Some(fleet::Several(all)) = error.downcast_ref() {
        return all.iter().all(is_unasked);
    }
    let is_lost = |error: &kube::Error| !matches!(error, kube::Error::Api(_));
    error.is::<kubeconfig::KubeconfigError>()
        || error.is::<explain::NotAsked>()
        || error.chain().any(|cause| cause.downcast_ref().is_some_and(is_lost))
}

/// The command line. An empty environment variable counts as unset. kubectl runs a plugin by the name `kubectl-mcs`.
fn command() -> clap::Command {
    let is_plugin = env::args().next().is_some_and(|name| name.ends_with("kubectl-mcs"));
    let command = program::without_empty_variables(Cli::command());
    if is_plugin { command.bin_name("kubectl mcs") } else { command }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_cluster_that_cannot_be_asked_has_an_exit_code_of_its_own() {
        let lost = kube::Error::LinesCodecMaxLineLengthExceeded;
        let error = Err::<(), _>(lost).context("cluster east").unwrap_err();
        assert!(is_unasked(&error));
        let lost = || anyhow::Error::from(kube::Error::LinesCodecMaxLineLengthExceeded);
        let several = |all| fleet::all_of::<()>(all).context("clusters").unwrap_err();
        assert!(is_unasked(&several(vec![Err(lost()), Err(lost())])));
        assert!(!is_unasked(&several(vec![Err(lost()), Err(anyhow::anyhow!("refused"))])));
        let status = kube::core::Status { code: 409, ..Default::default() };
        assert!(!is_unasked(&kube::Error::Api(Box::new(status)).into()));
        assert!(!is_unasked(&anyhow::anyhow!("two clusters have the same id")));
    }
}
