//! What the control task works on, and what a feature may see and do of it.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{kernel::FlowSweeper, programs::InstalledPrograms, published::Published};
use crate::core::engine::Engine;

/// A report is published this long after a change, so that one report covers a burst.
const REPORT_DELAY: Duration = Duration::from_millis(100);

/// The engine, the programs and maps, and what other threads see of them.
pub struct Core {
    pub(crate) engine: Engine,
    pub(crate) installed: InstalledPrograms,
    pub(crate) sweeper: FlowSweeper,
    pub(crate) published: Arc<Published>,
    pub(super) report_at: Option<Instant>,
}

/// What the control task does next, the least first: a round reports too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Follow {
    /// It waits.
    Nothing,
    /// It reports soon.
    Report,
    /// It runs a round of the rules, and reports.
    Round,
}

impl Core {
    pub(crate) fn report_soon(&mut self) {
        self.report_at(Instant::now() + REPORT_DELAY);
    }

    /// Reports at this time at the latest.
    pub(super) fn report_at(&mut self, time: Instant) {
        self.report_at = Some(self.report_at.map_or(time, |at| at.min(time)));
    }
}
