//! In `status`: whether the hooks are effective, and what the agent has repaired.

use crate::{
    agent::{AuditReport, Repairs, Report, age},
    loader::Tampering,
    verify::AttachmentReport,
};

/// `Attachment: ...`, `Audit: ...`, `Repairs: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let attachment = report.attachment.iter().flat_map(attachment);
    attachment
        .chain(audit(&report.audit))
        .chain(repairs(&report.repairs, report.tc.repairs))
        .collect()
}

fn attachment(report: &AttachmentReport) -> Vec<String> {
    let coverage = &report.coverage;
    let self_test = match (report.self_test, &report.self_test_says) {
        (Some(true), _) => "self-test passed".to_owned(),
        (Some(false), _) => "self-test FAILED: a process was not translated".to_owned(),
        (None, why) => format!("no self-test: {}", why.as_deref().unwrap_or("not yet")),
    };
    let mut lines = vec![format!(
        "Attachment: the kernel runs the programs in {} of {} cgroups; {self_test} {} ago",
        coverage.effective(),
        coverage.cgroups,
        age(report.at)
    )];
    lines.extend(coverage.before.iter().map(|other| format!("  {other} runs before our programs")));
    lines
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

fn repairs(repairs: &Repairs, devices: u64) -> Vec<String> {
    let counts = repairs.counts.iter().map(|(tampering, count)| (*tampering, *count));
    let counts = counts.chain([(Tampering::Device, devices)]).filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(tampering, count)| format!("{tampering} {count}")).collect();
    if counts.is_empty() {
        return Vec::new();
    }
    let latest = repairs.latest.iter().map(|one| format!("  {} ago: {}", age(one.at), one.what));
    [format!("Repairs: {}", counts.join(", "))].into_iter().chain(latest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent::{AuditPass, Repaired},
        verify::CgroupCoverage,
    };

    #[test]
    fn repairs_are_counted_and_the_latest_are_listed() {
        assert!(repairs(&Repairs::default(), 0).is_empty());
        let lines = repairs(
            &Repairs {
                counts: [(Tampering::Pin, 2)].into(),
                latest: [Repaired {
                    at: 0,
                    what: "the pin x was removed; pinned again".to_owned(),
                }]
                .into(),
                problems: vec![],
            },
            3,
        );
        assert_eq!(lines[0], "Repairs: pin 2, device 3");
        assert!(lines[1].ends_with("the pin x was removed; pinned again"), "{lines:?}");
    }

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

    #[test]
    fn programs_that_run_before_ours_are_named() {
        let coverage = CgroupCoverage {
            cgroups: 3,
            before: vec!["program 7 (connect4, /a)".to_owned()],
            ..CgroupCoverage::default()
        };
        let report =
            AttachmentReport { coverage, self_test: Some(true), ..AttachmentReport::default() };
        let lines = attachment(&report);
        assert!(
            lines[0].starts_with(
                "Attachment: the kernel runs the programs in 3 of 3 cgroups; self-test passed "
            ),
            "{lines:?}"
        );
        assert_eq!(lines[1], "  program 7 (connect4, /a) runs before our programs");
    }
}
