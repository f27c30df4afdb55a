//! `cargo xtask cost`: the cost of the eBPF programs for traffic to no VIP.

use std::process::ExitCode;

use anyhow::Result;

use crate::{build, workspace::Workspace};

/// Print what the eBPF programs cost, each figure beside its budget
///
/// For each program: its instructions, and those that the kernel's verifier looks at (as root). For
/// runs with nothing to do: instructions executed and helpers called, counted by an interpreter, so
/// that they are the same each time. Fails beyond the budget.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print rows for the budget that fit what the programs cost now
    #[arg(long)]
    propose: bool,
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let object = build::object(workspace)?;
    build::run_suite(workspace, &object, "cost", |cost| {
        cost.args(args.propose.then_some("--propose"));
    })?;
    Ok(ExitCode::SUCCESS)
}
