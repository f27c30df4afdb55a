//! Writes the status file beside the control task: a report of thousands of imports takes milliseconds, and no change waits
//! for it.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    cpu::thread_cpu,
    report::{Report, ReportError},
};

/// The status file, and whether it is being written.
#[derive(Default)]
pub(super) struct StatusFile {
    writing: Option<JoinHandle<Written>>,
    /// Whether a report was left out because another one was being written.
    is_outdated: bool,
}

/// The outcome of writing a report.
pub(super) struct Written {
    pub(super) result: Result<(), ReportError>,
    /// CPU time of the report: to make it, and to write it.
    pub(super) cpu: Duration,
}

impl StatusFile {
    /// Whether a report is being written.
    pub(super) const fn is_busy(&self) -> bool {
        self.writing.is_some()
    }

    /// Notes that a report is due while another one is being written.
    pub(super) const fn leave_out(&mut self) {
        self.is_outdated = true;
    }

    /// Whether a report has been left out since the last call.
    pub(super) const fn take_outdated(&mut self) -> bool {
        std::mem::replace(&mut self.is_outdated, false)
    }

    /// Begins to write a report into `directory`. The caller makes sure that none is being written. `spent`: the CPU time
    /// that it took to make it.
    pub(super) fn write(&mut self, report: Arc<Report>, directory: PathBuf, spent: Duration) {
        self.writing = Some(spawn_blocking(move || {
            let before = thread_cpu();
            let result = report.write(&directory);
            Written { result, cpu: spent + thread_cpu().saturating_sub(before) }
        }));
    }

    /// Waits until the report is written; for ever if none is. If the future is dropped before, the next call waits for the
    /// same report.
    pub(super) async fn written(&mut self) -> io::Result<Written> {
        let Some(writing) = &mut self.writing else { return std::future::pending().await };
        let result = writing.await;
        self.writing = None;
        result.map_err(io::Error::other)
    }
}
