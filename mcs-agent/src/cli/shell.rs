//! `mcs-agent completion` and `mcs-agent man`: files that are made from the command line itself.

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

/// Print the completion script of a shell: `source <(mcs-agent completion bash)`
#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Write the man pages of mcs-agent and its commands
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// An existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn complete(args: &CompletionArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "mcs-agent", &mut script);
    // A reader that closes early is no error.
    drop(io::Write::write_all(&mut io::stdout(), &script));
    ExitCode::SUCCESS
}

pub(super) fn man(args: &ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(command, &args.directory)
        .with_context(|| format!("cannot write to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
