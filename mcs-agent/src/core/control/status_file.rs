//! Writes the status file beside the control task: a report of thousands of imports takes milliseconds, and no change waits
//! for it.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use tokio::task::{JoinHandle, spawn_blocking};

use super::{process::thread_cpu, report::Report, run_directory::ReportError};

/// Seconds after which an unchanged report is written again.
const OLDEST: u64 = 30;

/// The status file, and whether it is being written.
#[derive(Default)]
pub(super) struct StatusFile {
    writing: Option<JoinHandle<Written>>,
    /// The report that was written last, or is being written.
    latest: Option<Arc<Report>>,
    /// Whether a report was left out because another one was being written.
    pub(super) is_outdated: bool,
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

    /// Whether a report says more than the one in the file, or the file is old.
    pub(super) fn lacks(&self, report: &Report) -> bool {
        self.is_old(report.common.agent.updated)
            || self.latest.as_ref().is_none_or(|latest| !report.says_the_same(latest))
    }

    /// Whether the file has to be written again, `now` in seconds since the Unix epoch.
    pub(super) fn is_old(&self, now: u64) -> bool {
        let latest = self.latest.as_ref();
        latest.is_none_or(|latest| now.saturating_sub(latest.common.agent.updated) >= OLDEST)
    }

    /// Begins to write a report into `directory`. The caller makes sure that none is being written. `spent`: the CPU time
    /// that it took to make it.
    pub(super) fn write(&mut self, report: Arc<Report>, directory: PathBuf, spent: Duration) {
        self.latest = Some(Arc::clone(&report));
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
        if !result.as_ref().is_ok_and(|written| written.result.is_ok()) {
            self.latest = None;
        }
        result.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::{AgentInfo, Start, remove_files, report::fixture::report, start};

    /// With 10,000 imports a write takes milliseconds, and changes of endpoints alone change little that it says.
    #[tokio::test]
    async fn a_report_that_says_nothing_new_is_written_only_when_the_file_is_old() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = StatusFile::default();
        let mut write = async |report: &Report, directory: &std::path::Path| {
            file.write(Arc::new(report.clone()), directory.to_owned(), Duration::ZERO);
            let is_written = file.written().await.unwrap().result.is_ok();
            let mut later = report.clone();
            later.common.agent.updated += OLDEST - 1;
            let same = file.lacks(&later);
            later.imports = Arc::default();
            let other = file.lacks(&later);
            let old = file.is_old(report.common.agent.updated + OLDEST);
            (is_written, same, other, old)
        };
        let report = report();
        assert_eq!(write(&report, directory.path()).await, (true, false, true, true));
        assert_eq!(Report::read(directory.path()).unwrap(), report);
        // What could not be written is written as soon as possible.
        let no_directory = directory.path().join("status.json/below");
        assert_eq!(write(&report, &no_directory).await, (false, true, true, true));
        assert!(StatusFile::default().lacks(&report));
    }

    /// In a container every agent is process 1.
    #[test]
    fn a_start_keeps_the_report_of_the_agent_before() {
        let directory = tempfile::tempdir().unwrap();
        let former = report();
        former.write(directory.path()).unwrap();
        let started = |started| AgentInfo { started, ..former.common.agent.clone() };
        let mut start = Start { agent: started(150), failure: None };
        for failure in [None, Some("no verifier likes it".to_owned())] {
            start.failure = failure;
            start::write(&start, directory.path()).unwrap();
            let kept = Report::read(directory.path()).unwrap();
            assert_eq!(start::read(directory.path()), Some(start.clone()));
            assert!(start.is_after(&kept.common.agent));
        }
        assert!(!start.is_after(&started(150)));
        // A later start could not be written.
        assert!(!start.is_after(&started(200)));
        remove_files(directory.path());
        assert!(!directory.path().exists());
    }
}
