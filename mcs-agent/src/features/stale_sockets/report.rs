//! Stale sockets in the status report, in `status` and in the metrics.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{StalePass, TCP, UDP};
use crate::core::control::{
    Report,
    metrics::{Families, truth},
};

/// What the agent does about a protocol's sockets that are connected to removed backends. Displays as a line of `status`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StaleReport {
    /// `--stale-udp=destroy` or `--stale-tcp=destroy`.
    pub wanted: bool,
    /// Why the agent cannot destroy them, if it cannot.
    pub obstacle: Option<String>,
    /// Network namespaces found at the latest pass, or else at start.
    pub namespaces: usize,
    /// Processes whose namespace the agent could not see then, for want of `CAP_SYS_PTRACE`.
    pub closed: usize,
    /// Sockets destroyed since the agent started.
    pub destroyed: u64,
    /// Sockets that had been closed before.
    pub gone: u64,
    /// Sockets that the latest pass left connected, since it did not find their network namespaces.
    #[serde(default)]
    pub out_of_reach: u64,
    /// Sockets and namespaces where that failed.
    pub failed: u64,
    /// Microseconds that the latest pass took.
    pub pass_micros: u64,
}

/// Why sockets stay connected that the agent wants to destroy.
pub(super) const NOT_FOUND: &str = "their network namespaces were found neither in /run/netns or /run/docker/netns nor by a process \
                                    (chart: staleUdp.namespaces)";

impl StaleReport {
    /// Whether they are destroyed.
    pub const fn is_done(&self) -> bool {
        self.wanted && self.obstacle.is_none()
    }

    pub(super) fn add(&mut self, pass: &StalePass) {
        self.namespaces = pass.namespaces;
        self.closed = pass.unseen_processes;
        self.destroyed += pass.destroyed;
        self.gone += pass.closed_before;
        self.out_of_reach = pass.out_of_reach;
        self.failed += pass.failures.len() as u64;
        self.pass_micros = u64::try_from(pass.took.as_micros()).unwrap_or(u64::MAX);
    }
}

impl fmt::Display for StaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.obstacle {
            _ if !self.wanted => f.write_str("off"),
            Some(obstacle) => {
                write!(f, "sockets stay connected to removed backends: {obstacle}")
            }
            None => {
                let Self { namespaces, closed, destroyed, failed, out_of_reach, .. } = self;
                write!(
                    f,
                    "sockets connected to removed backends are destroyed, in {namespaces} network \
                     namespaces: {destroyed} so far, {failed} failures"
                )?;
                if *closed > 0 {
                    write!(
                        f,
                        "; {closed} processes do not show theirs without CAP_SYS_PTRACE, unless it \
                         has a name in /run/netns"
                    )?;
                }
                if *out_of_reach > 0 {
                    write!(f, "; {out_of_reach} stay connected: {NOT_FOUND}")?;
                }
                Ok(())
            }
        }
    }
}

fn part(report: &Report, name: &str) -> StaleReport {
    report.sections.get(name).unwrap_or_default()
}

/// `Stale UDP: ...`, `Stale TCP: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    [("UDP", UDP), ("TCP", TCP)]
        .map(|(protocol, name)| format!("Stale {protocol}: {}", part(report, name)))
        .into()
}

pub(super) fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let of = [("udp", part(report, UDP)), ("tcp", part(report, TCP))];
    families.gauges(
        "mcs_stale_sockets_enabled",
        "1 if the protocol's sockets that are connected to removed backends are destroyed, else 0",
        ["protocol"],
        of.each_ref().map(|(protocol, stale)| ([protocol], truth(stale.is_done()))),
    )?;
    families.counters(
        "mcs_stale_sockets_total",
        "Sockets connected to removed backends: destroyed, gone (closed before, or out of reach) or failed",
        ["protocol", "result"],
        of.iter().flat_map(|(protocol, stale)| {
            [
                ([protocol, "destroyed"], stale.destroyed),
                ([protocol, "gone"], stale.gone),
                ([protocol, "failed"], stale.failed),
            ]
        }),
    )?;
    families.gauges(
        "mcs_stale_sockets_pass_duration_seconds",
        "Seconds that the latest pass over the network namespaces took",
        ["protocol"],
        of.each_ref().map(|(protocol, stale)| {
            ([protocol], Duration::from_micros(stale.pass_micros).as_secs_f64())
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_said() {
        let done = StaleReport { wanted: true, namespaces: 3, ..StaleReport::default() };
        let obstacle = Some("no right".to_owned());
        let cases = [
            (
                done.clone(),
                true,
                "sockets connected to removed backends are destroyed, in 3 network namespaces: 0 \
                 so far, 0 failures",
            ),
            (
                StaleReport { closed: 2, ..done.clone() },
                true,
                "sockets connected to removed backends are destroyed, in 3 network namespaces: 0 \
                 so far, 0 failures; 2 processes do not show theirs without CAP_SYS_PTRACE, unless \
                 it has a name in /run/netns",
            ),
            (
                StaleReport { out_of_reach: 2, ..done.clone() },
                true,
                "sockets connected to removed backends are destroyed, in 3 network namespaces: 0 \
                 so far, 0 failures; 2 stay connected: their network namespaces were found neither in \
                 /run/netns or /run/docker/netns nor by a process (chart: staleUdp.namespaces)",
            ),
            (
                StaleReport { obstacle, ..done },
                false,
                "sockets stay connected to removed backends: no right",
            ),
            (StaleReport::default(), false, "off"),
        ];
        for (report, is_done, text) in cases {
            assert_eq!(report.is_done(), is_done, "{text}");
            assert_eq!(report.to_string(), text);
        }
    }
}
