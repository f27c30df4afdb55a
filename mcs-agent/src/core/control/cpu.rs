//! CPU time of a thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this thread so far.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
