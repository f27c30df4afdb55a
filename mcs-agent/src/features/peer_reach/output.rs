//! The reach of peers in `status`, in the checks and in the metrics.

use std::time::Duration;

use super::{ReachReport, SECTION};
use crate::core::control::{
    Check, Report,
    metrics::{Families, figure, truth},
};
use crate::core::feature::ClusterLine;

/// Absent with `--probe-peers=off`.
fn part(report: &Report) -> Option<Vec<ReachReport>> {
    report.sections.get(SECTION)
}

/// How many ways to other clusters a line names.
const WAYS: usize = 12;

/// Whether this node reaches pods of other clusters.
fn reach(ways: Option<&[ReachReport]>) -> String {
    let ways = match ways {
        None => return "pods of other clusters are not connected to".to_owned(),
        Some([]) => return "no pod of another cluster was connected to yet".to_owned(),
        Some(ways) => ways,
    };
    // Those with a problem first.
    let mut sorted: Vec<_> = ways.iter().collect();
    sorted.sort_by_key(|way| way.reachable != Some(false));
    let mut named: Vec<_> = sorted.iter().take(WAYS).map(ToString::to_string).collect();
    if ways.len() > WAYS {
        named.push(format!("and {} more", ways.len() - WAYS));
    }
    named.join("; ")
}

/// The ways to a cluster, without its name.
pub(super) fn clusters(report: &Report) -> Vec<ClusterLine> {
    let ways = part(report).unwrap_or_default().into_iter();
    let line = |way: ReachReport| {
        let text = way.to_string();
        let text = text.strip_prefix(&*way.cluster).unwrap_or(&text).trim().to_owned();
        ClusterLine { is_good: way.reachable, text, cluster: way.cluster }
    };
    ways.map(line).collect()
}

/// `Reach: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    vec![format!("Reach: {}", reach(part(report).as_deref()))]
}

pub(super) fn failings(report: &Report) -> Vec<(Check, String)> {
    let ways = part(report).unwrap_or_default();
    ways.iter().filter_map(ReachReport::problem).map(|problem| (Check::Reach, problem)).collect()
}

pub(super) fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let ways = part(report).unwrap_or_default();
    let ways = || ways.iter();
    families.gauges(
        "mcs_reach_ok",
        "1 if this node reaches pods of the source cluster, 0 if not; absent while unknown",
        ["source_cluster", "family"],
        ways().filter_map(|way| Some(([&*way.cluster, &*way.family], truth(way.reachable?)))),
    )?;
    families.gauges(
        "mcs_reach_endpoints",
        "Pods of the source cluster that this node connected to in the last round, by result (reached, silent)",
        ["source_cluster", "family", "result"],
        ways().flat_map(|way| {
            [("reached", way.reached), ("silent", way.silent)].map(|(result, count)| {
                ([&*way.cluster, &*way.family, result], figure(count))
            })
        }),
    )?;
    families.gauges(
        "mcs_reach_round_trip_seconds",
        "The shortest time in which one of these pods has answered",
        ["source_cluster", "family"],
        ways().filter_map(|way| {
            let time = Duration::from_micros(way.round_trip_micros?);
            Some(([&*way.cluster, &*way.family], time.as_secs_f64()))
        }),
    )
}

#[cfg(test)]
mod tests {
    use mcs_kube::reasons::{Coded as _, Severity};

    use super::*;
    use crate::core::control::report::fixture;

    #[test]
    fn a_cluster_that_is_not_reached_makes_no_agent_unready() {
        let mut report = fixture::report();
        let way = ReachReport {
            cluster: "west".to_owned(),
            family: "IPv6".to_owned(),
            reachable: Some(true),
            reached: 1,
            silent: 1,
            round_trip_micros: Some(1250),
            silent_endpoints: vec![],
        };
        report.sections.set(SECTION, &[&way]);
        assert_eq!(failings(&report), []);
        assert_eq!(way.to_string(), "west IPv6 reached in 1.2 ms (1 silent)");
        let silent_endpoints = vec!["[fd02::1]:80".parse().unwrap()];
        let silent = ReachReport { reachable: Some(false), silent_endpoints, ..way };
        report.sections.set(SECTION, &[silent]);
        let (check, problem) = failings(&report).remove(0);
        assert_eq!((check, check.severity()), (Check::Reach, Severity::Note));
        assert!(problem.contains("cluster west by IPv6, such as [fd02::1]:80"), "{problem}");
    }
}
