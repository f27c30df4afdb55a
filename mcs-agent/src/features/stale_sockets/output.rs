//! Stale sockets in `status` and in the metrics.

use std::time::Duration;

use super::{StaleReport, TCP, UDP};
use crate::core::control::{
    Report,
    metrics::{Families, truth},
};

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
