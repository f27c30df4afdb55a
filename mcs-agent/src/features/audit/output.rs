//! The audit in `status` and in the metrics.

use super::{AuditReport, SECTION};
use crate::core::{
    control::{
        Report,
        metrics::{Families, bytes},
    },
    tables::audited_maps,
};

/// `Audit: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    report.sections.get(SECTION).as_ref().and_then(audit).into_iter().collect()
}

fn audit(report: &AuditReport) -> Option<String> {
    let last = report.last?;
    let repairs: u64 = report.repairs.values().sum();
    Some(format!(
        "Audit: {} passes, {repairs} entries repaired; the last pass compared {} entries with {:.1} ms of CPU time",
        report.passes,
        last.entries,
        last.cpu_seconds * 1e3
    ))
}

pub(super) fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let audit: AuditReport = report.sections.get(SECTION).unwrap_or_default();
    let repairs = |map: &str| audit.repairs.get(map).copied().unwrap_or(0);
    families.counters(
        "mcs_audit_repairs_total",
        "Repairs of config map entries that another process changed, added or removed",
        ["map"],
        audited_maps().map(|map| ([map], repairs(map))),
    )?;
    families.counters(
        "mcs_audit_passes_total",
        "Complete comparisons of the config maps with what the agent wrote",
        [],
        [([] as [&str; 0], audit.passes)],
    )?;
    if let Some(last) = audit.last {
        for (name, help, value) in [
            ("mcs_audit_pass_entries", "Entries compared in the latest pass", bytes(last.entries)),
            ("mcs_audit_pass_seconds", "Seconds that the latest pass took", last.seconds),
            (
                "mcs_audit_pass_cpu_seconds",
                "Seconds of CPU time that the latest pass took",
                last.cpu_seconds,
            ),
        ] {
            families.gauge(name, help, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::audit::AuditPass;

    #[test]
    fn the_audit_reports_its_cost() {
        assert_eq!(audit(&AuditReport::default()), None);
        let last = AuditPass { entries: 40_000, seconds: 0.02, cpu_seconds: 0.0123 };
        let report = AuditReport {
            passes: 3,
            entries: 120_000,
            repairs: [("slots".to_owned(), 1)].into(),
            last: Some(last),
        };
        assert_eq!(
            audit(&report).unwrap(),
            "Audit: 3 passes, 1 entries repaired; the last pass compared 40000 entries with 12.3 ms of CPU time"
        );
    }
}
