use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;

use super::{BpffsArg, output::print};
use crate::{
    dataplane::read_run_record,
    loader::{DirectoryLock, Pins},
};

/// Detach every program and remove every map of the agent, and nothing else.
///
/// From then on ClusterSetIPs are addresses like any other. Connections that were made go on.
#[derive(Debug, Args)]
pub(super) struct CleanupArgs {
    #[command(flatten)]
    bpffs: BpffsArg,
}

pub(super) fn run(args: &CleanupArgs) -> anyhow::Result<ExitCode> {
    let pins = Pins::new(&args.bpffs.bpffs);
    let root = pins.root().display().to_string();
    if !pins.root().exists() {
        print(&format!("nothing to clean up: {root} does not exist"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lock =
        DirectoryLock::try_take(pins.root()).with_context(|| format!("cannot lock {root}"))?;
    if lock.is_none() {
        let run = read_run_record(&pins.config());
        let holder = run.map_or_else(
            |_| String::new(),
            |run| format!(" (process {} on {})", run.pid, run.host),
        );
        bail!("an mcs-agent runs on {root}{holder}: stop it first");
    }
    let run_directory = read_run_record(&pins.config()).ok().map(|run| run.directory);
    let cleaned = pins.clean().with_context(|| format!("cannot remove {root}"))?;
    if let Some(directory) = run_directory {
        remove_run_directory(&directory);
    }
    print(&format!(
        "removed {root}: {} programs detached, {} maps unpinned",
        cleaned.links, cleaned.maps
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Removes the status file. Seen from elsewhere (another mount namespace) it may not be there.
fn remove_run_directory(directory: &PathBuf) {
    for file in ["status.json", "status.json.new"] {
        let _ = fs::remove_file(directory.join(file));
    }
    let _ = fs::remove_dir(directory);
}
