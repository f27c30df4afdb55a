//! `completion` and `man`: files generated from the command line of a program.

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

/// Print the completion script of a shell, for `source <(PROGRAM completion bash)`
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Write the man pages of the program and its commands
#[derive(Debug, Args)]
pub struct ManArgs {
    /// An existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the completion script.
pub fn complete(args: &CompletionArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    // A reader that closes early is no error.
    drop(io::Write::write_all(&mut io::stdout(), &script));
    ExitCode::SUCCESS
}

/// Writes the man pages.
///
/// # Errors
/// The directory cannot be written.
pub fn man(args: &ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(command, &args.directory)
        .with_context(|| format!("cannot write to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
