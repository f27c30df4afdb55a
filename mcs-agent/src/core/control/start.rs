//! Who started last: a file beside the status file. Until the first report of this agent the status file is that of an
//! agent before.

use std::path::Path;

use mcs_kube::{
    report::{AgentInfo, Start},
    shorten,
};

use super::{
    config::Config,
    run_directory::{ReportError, START_FILE, read_file, replace_file, run_directory},
};
use crate::core::kernel::loader::{DirectoryLock, Pins};

/// Reads the latest start in `directory`.
pub(crate) fn read(directory: &Path) -> Option<Start> {
    read_file(directory, START_FILE).ok()
}

/// Replaces the start before it.
pub(super) fn write(start: &Start, directory: &Path) -> Result<(), ReportError> {
    replace_file(directory, START_FILE, start)
}

/// Leaves why this process ends for `status`, unless another agent has its bpffs directory.
pub(super) fn note_failure(config: &Config, agent: AgentInfo, error: &anyhow::Error) {
    let pins = Pins::new(&config.bpffs);
    let Ok(Some(_lock)) = DirectoryLock::try_take(pins.root()) else { return };
    let Ok(directory) = run_directory(config, &pins) else { return };
    let start = Start { agent, failure: Some(shorten(&format!("{error:#}"))) };
    if let Err(error) = write(&start, &directory) {
        tracing::warn!("{:#}", anyhow::Error::new(error));
    }
}
