//! The state that the control task publishes for the HTTP server.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use mcs_kube::program::Heartbeat;

use super::{Metrics, PageData, page::count};

/// How long the control task may be silent. It looks at its clock every second.
const PATIENCE: Duration = Duration::from_mins(1);

/// The state that the control task publishes for the HTTP server.
#[derive(Debug)]
pub struct Published {
    /// Of the control task.
    pub life: Heartbeat,
    synced: AtomicBool,
    /// The metrics.
    pub metrics: Metrics,
    /// What the page says; absent without `--page`.
    pub page: Option<PageData>,
}

impl Published {
    /// The state at the start. `page`: whether there is one.
    pub fn new(page: bool) -> prometheus::Result<Self> {
        Ok(Self {
            life: Heartbeat::default(),
            synced: AtomicBool::new(false),
            metrics: Metrics::new()?,
            page: page.then(PageData::default),
        })
    }

    /// Counts for the plots of the page, as long as the process runs.
    pub async fn follow_figures(&self) {
        if let Some(page) = &self.page {
            page.figures.follow(|| Some(count(&self.metrics))).await;
        }
    }

    /// Everything of this cluster was read.
    pub fn set_synced(&self) {
        self.synced.store(true, Ordering::Relaxed);
    }

    /// Why the process has to be restarted.
    pub fn stuck(&self) -> Option<String> {
        let silence = self.life.silence();
        (silence > PATIENCE)
            .then(|| format!("the control task has been stuck for {} s", silence.as_secs()))
    }

    /// Why the replica could not take over. Outages of API servers do not count: they would make all replicas unready.
    pub fn not_ready(&self) -> Option<String> {
        if self.life.is_stopping() {
            return Some("the controller ends".to_owned());
        }
        (!self.synced.load(Ordering::Relaxed))
            .then(|| "not everything of this cluster was read yet: see the log".to_owned())
    }
}
