//! Who started last: a file beside the status file. Until the first report of this agent the status file is that of an
//! agent before.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    config::Config,
    report::{AgentInfo, Report},
    run_directory::{ReportError, START_FILE, read_file, replace_file, run_directory},
};
use crate::{
    loader::{DirectoryLock, Pins},
    model::shorten,
};

/// The latest start of an agent. Part of `status -o json`: fields are added, never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Who started.
    pub agent: AgentInfo,
    /// Why it has ended. Absent while it runs, and after a signal.
    pub failure: Option<String>,
}

impl Start {
    /// Reads the latest start in `directory`. An agent of an earlier version has left none.
    pub fn read(directory: &Path) -> Option<Self> {
        read_file(directory, START_FILE).ok()
    }

    /// Replaces the start before it.
    pub(super) fn write(&self, directory: &Path) -> Result<(), ReportError> {
        replace_file(directory, START_FILE, self)
    }

    /// Whether an agent before this one wrote the report. In containers all agents have the same process id.
    pub fn is_after(&self, report: &Report) -> bool {
        let key = |agent: &AgentInfo| (agent.started, agent.pid, agent.host.clone());
        self.agent.started >= report.agent.started && key(&self.agent) != key(&report.agent)
    }
}

/// Leaves why this process ends for `status`, unless another agent has its bpffs directory.
pub(super) fn note_failure(config: &Config, agent: AgentInfo, error: &anyhow::Error) {
    let pins = Pins::new(&config.bpffs);
    let Ok(Some(_lock)) = DirectoryLock::try_take(pins.root()) else { return };
    let Ok(directory) = run_directory(config, &pins) else { return };
    let start = Start { agent, failure: Some(shorten(&format!("{error:#}"))) };
    if let Err(error) = start.write(&directory) {
        tracing::warn!("{:#}", anyhow::Error::new(error));
    }
}
