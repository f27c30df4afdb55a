//! The state that the control task publishes for the HTTP server.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::Uri;
use mcs_kube::program::{
    Heartbeat,
    http::{Answer, Serves},
};

use super::Metrics;

/// How long the control task may be silent. It looks at its clock every second.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers a request if it is about its path.
type Answers = Box<dyn Fn(Serves, &Uri) -> Option<Answer> + Send + Sync>;

/// The state that the control task publishes for the HTTP server.
pub struct Published {
    /// Of the control task.
    pub life: Heartbeat,
    synced: AtomicBool,
    /// The metrics.
    pub metrics: Metrics,
    /// What answers requests for other paths than those of every controller.
    pub(crate) answers: Vec<Answers>,
}

impl Published {
    /// The state at the start.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            life: Heartbeat::default(),
            synced: AtomicBool::new(false),
            metrics: Metrics::new()?,
            answers: vec![],
        })
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
