//! Ignored objects of a mailbox. All are counted, and few are logged: their writer must not fill the log.

use std::time::{Duration, Instant};

use mcs_kube::{ObjectKey, one_line_of};

use crate::core::clusterset::ClusterId;

/// The most lines a minute.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_mins(1);
/// The bytes of a name or a reason.
const LONGEST: usize = 300;

/// The number of ignored objects.
#[derive(Debug)]
pub(super) struct Ignored {
    count: u64,
    since: Instant,
    /// Since then.
    lines: u32,
    /// The objects of this minute without a line.
    unsaid: u64,
}

impl Ignored {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { count: 0, since: now, lines: 0, unsaid: 0 }
    }

    /// How many since the start.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Counts an ignored object of a cluster's mailbox, and may log it.
    pub(super) fn note(
        &mut self,
        cluster: &ClusterId,
        (kind, key): (&str, &ObjectKey),
        reason: &str,
        now: Instant,
    ) {
        self.count += 1;
        self.begin_anew(cluster, now);
        if self.lines == LINES {
            self.unsaid += 1;
            return;
        }
        self.lines += 1;
        let key = one_line_of(&key.to_string(), LONGEST);
        let reason = one_line_of(reason, LONGEST);
        tracing::warn!("{kind} {key} in the mailbox of cluster {cluster} is ignored: {reason}");
    }

    /// Begins the next minute. Logs the number of objects that had no line.
    fn begin_anew(&mut self, cluster: &ClusterId, now: Instant) {
        if now.saturating_duration_since(self.since) < WINDOW {
            return;
        }
        if self.unsaid > 0 {
            let unsaid = self.unsaid;
            tracing::warn!(
                "{unsaid} more objects in the mailbox of cluster {cluster} were ignored"
            );
        }
        (self.since, self.lines, self.unsaid) = (now, 0, 0);
    }
}
