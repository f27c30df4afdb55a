//! The health checks of a running agent. `status`, `/readyz` and the metrics report their results.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use mcs_kube::reasons::Check;
use mcs_kube::reasons::{Coded as _, Severity};

use super::{config::SocketLb, report::Report};
use crate::core::{
    kernel::loader::{AttachedHook, LoadError, Pins, TcLink},
    model::{AcceptedVips, RejectionReason, SourceStatus},
};

/// How many addresses a message names.
const NAMED: usize = 3;

/// Whether readiness needs a check. It ignores what tenants write, programs of others, and the way to other clusters.
pub(crate) fn is_of_readiness(check: Check) -> bool {
    check.severity() == Severity::Wrong
}

/// What the kernel lists as attached.
#[derive(Debug, Default)]
pub struct Attachments {
    /// Every socket hook.
    pub hooks: Vec<AttachedHook>,
    /// Every pinned link to a device.
    pub links: Vec<TcLink>,
    /// What cannot be read, and why, with the check that this fails.
    pub problems: Vec<(Check, String)>,
}

impl Attachments {
    /// Asks the kernel: a few system calls for each hook and each device.
    pub fn read(pins: &Pins) -> Self {
        let mut problems = Vec::new();
        let mut note = |check, error: LoadError| {
            problems.push((check, format!("{:#}", anyhow::Error::new(error))));
        };
        let hooks = pins.hooks().map_err(|error| note(Check::Hooks, error)).unwrap_or_default();
        let links =
            pins.tc_links().map_err(|error| note(Check::Devices, error)).unwrap_or_default();
        Self { hooks, links, problems }
    }
}

/// Every problem that the core knows of a running agent, with the check that it fails.
pub(crate) fn failings(report: &Report, attachments: &Attachments) -> Vec<(Check, String)> {
    let mut failings = attachments.problems.clone();
    let mut fail = |check, what| failings.push((check, what));
    if !report.synced {
        fail(
            Check::Sync,
            format!(
                "not synced: {} has not been read completely since the agent started; nothing is \
                 removed until it has",
                report.common.source.name
            ),
        );
    }
    if let Some(lost) = unfollowed(&report.common.source) {
        fail(Check::Source, lost);
    }
    for problem in
        report.common.source.problems.iter().filter(|_| report.common.source.is_directory())
    {
        fail(Check::Source, format!("{}: {}", problem.place, problem.message));
    }
    if report.outdated {
        fail(
            Check::Programs,
            "the attached programs are those of an earlier agent, and their maps no longer change: \
             the agent switches them once the source is synced"
                .to_owned(),
        );
    }
    if report.socket_lb != SocketLb::Off {
        for hook in &attachments.hooks {
            if hook.cgroup_id != Some(report.cgroup_id) {
                fail(
                    Check::Hooks,
                    format!(
                        "{} is not attached to {}, or not pinned: the agent repairs that within seconds",
                        hook.name,
                        report.cgroup_path.display()
                    ),
                );
            }
        }
    }
    for failing in report.tc.failings(&attachments.links) {
        fail(Check::Devices, failing);
    }
    for unguarded in report.tc.unguarded() {
        fail(Check::Guard, unguarded);
    }
    for problem in &report.repairs.problems {
        fail(Check::Places, problem.clone());
    }
    for pending in &report.common.pending {
        fail(Check::Maps, format!("not in the maps yet: {pending}"));
    }
    if let Some(count) = report.common.rejection_counts.get(&RejectionReason::Capacity) {
        fail(
            Check::Capacity,
            format!(
                "{count} parts of imports do not fit into --max-memory={}: they are listed among the rejections; raise it",
                report.max_memory
            ),
        );
    }
    for problem in report.listeners.iter().filter_map(|listener| listener.problem.as_ref()) {
        fail(Check::Addresses, problem.clone());
    }
    failings.extend(outside_ranges(report));
    failings
}

/// ClusterSetIPs outside of the ranges. An agent whose flag is wrong is not ready, so that a roll-out ends at it; for ranges
/// that all agents of the cluster read, no agent is.
fn outside_ranges(report: &Report) -> Option<(Check, String)> {
    let accepted = AcceptedVips::new(&report.vip_cidrs, &report.common.node.vip_ranges)?;
    let advice = if accepted.by_flag {
        "give the flag the range that the controllers have"
    } else {
        "give mcs-controller the range, or the agents --vip-cidr with both; where mcs-controller is gone, delete the ClusterProperty"
    };
    if !report.vips_kept.is_empty() {
        let named: Vec<_> = report.vips_kept.iter().take(NAMED).map(ToString::to_string).collect();
        let what = format!(
            "{} ClusterSetIPs are served, as before, although they are outside {accepted}, such as {}: {advice}, or delete \
             their imports",
            report.vips_kept.len(),
            named.join(", ")
        );
        return Some((if accepted.by_flag { Check::Ranges } else { Check::Imports }, what));
    }
    (report.imports_outside > 0).then(|| {
        let what = format!(
            "nothing is served: the ClusterSetIPs of {} imports are outside {accepted}: {advice}",
            report.imports_outside
        );
        (Check::Imports, what)
    })
}

/// One message about all resources that were read and whose changes no longer arrive: if the API server is
/// unreachable, all of them are lost together.
pub(crate) fn unfollowed(source: &SourceStatus) -> Option<String> {
    let lost = source.kinds.iter().filter_map(|kind| Some((&*kind.resource, kind.known_until?)));
    let (resources, known): (Vec<_>, Vec<_>) = lost.unzip();
    let age = age(known.into_iter().min()?);
    Some(format!(
        "{} cannot be followed: the agent uses the objects as of {age} ago",
        resources.join(", ")
    ))
}

/// The time since `then`, which is in seconds since the Unix epoch.
pub fn age(then: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(then);
    let seconds = SystemTime::now().duration_since(then).map_or(0, |age| age.as_secs());
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::report::fixture::report;

    /// The checks that fail, beside those of hooks: no kernel was asked.
    fn failing(report: &Report) -> Vec<Check> {
        let failings = failings(report, &Attachments::default());
        failings
            .into_iter()
            .map(|(check, _)| check)
            .filter(|check| *check != Check::Hooks)
            .collect()
    }

    #[test]
    fn an_agent_whose_own_flag_rejects_what_it_serves_is_not_ready() {
        let mut report = report();
        assert_eq!(failing(&report), []);
        report.vip_cidrs = vec!["242.0.0.0/8".parse().unwrap()];
        report.vips_kept = ["241.0.0.1".parse().unwrap()].into();
        assert_eq!(failing(&report), [Check::Ranges]);
        // All agents of the cluster read these: no roll-out ends at one of them.
        report.common.node.vip_ranges = std::mem::take(&mut report.vip_cidrs);
        assert_eq!(failing(&report), [Check::Imports]);
    }

    #[test]
    fn a_node_whose_packets_may_leave_says_so_and_is_ready() {
        let mut report = report();
        report.tc.hidden_default_route = true;
        assert_eq!(failing(&report), [Check::Guard]);
        assert!(!is_of_readiness(Check::Guard) && is_of_readiness(Check::Ranges));
    }

    #[test]
    fn an_agent_without_room_says_so_and_is_ready() {
        let mut report = report();
        let counts = |reason| std::sync::Arc::new([(reason, 3)].into());
        report.common.rejection_counts = counts(RejectionReason::VipInvalid);
        assert_eq!(failing(&report), []);
        report.common.rejection_counts = counts(RejectionReason::Capacity);
        assert_eq!(failing(&report), [Check::Capacity]);
        let (_, problem) = failings(&report, &Attachments::default()).remove(0);
        assert!(problem.starts_with("3 parts of imports do not fit"), "{problem}");
    }

    /// Tenants write imports: what they write makes no agent unready.
    #[test]
    fn an_agent_that_serves_nothing_for_its_flag_says_so() {
        let mut report = report();
        report.vip_cidrs = vec!["242.0.0.0/8".parse().unwrap()];
        assert_eq!(failing(&report), []);
        report.imports_outside = 2;
        assert_eq!(failing(&report), [Check::Imports]);
    }
}
