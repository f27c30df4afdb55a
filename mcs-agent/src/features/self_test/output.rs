//! The verification in `status`, in the checks and in the metrics.

use super::{AttachmentReport, SECTION};
use crate::core::control::{
    Check, Report, age,
    metrics::{Families, figure, truth},
};

fn part(report: &Report) -> Option<AttachmentReport> {
    report.sections.get(SECTION)
}

/// `Attachment: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    part(report).iter().flat_map(attachment).collect()
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

pub(super) fn failings(report: &Report) -> Vec<(Check, String)> {
    let Some(attachment) = part(report) else { return Vec::new() };
    let failings = attachment.failings().into_iter().map(|failing| (Check::Hooks, failing));
    failings.chain(attachment.untranslated().map(|problem| (Check::Reach, problem))).collect()
}

pub(super) fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let Some(attachment) = part(report) else { return Ok(()) };
    families.gauges(
        "mcs_attachment_cgroups",
        "Cgroups where the kernel runs every hook (effective), or not every one (without)",
        ["state"],
        [
            (["effective"], figure(attachment.coverage.effective())),
            (["without"], figure(attachment.coverage.cgroups - attachment.coverage.effective())),
        ],
    )?;
    families.gauge(
        "mcs_attachment_witness",
        "Self-test: 1 if the programs refused its connection, 0 if not, -1 if there was no self-test",
        attachment.self_test.map_or(-1.0, truth),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::feature::unread,
        features::self_test::{CgroupCoverage, FEATURE},
    };

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

    #[test]
    fn a_part_of_another_version_is_no_missing_part() {
        let mut report = crate::core::control::report::fixture::report();
        assert_eq!(unread(&[FEATURE], &report), [""; 0]);
        report.sections.set(SECTION, &None::<AttachmentReport>);
        assert_eq!(unread(&[FEATURE], &report), [""; 0]);
        report.sections.set(SECTION, &AttachmentReport::default());
        assert_eq!(unread(&[FEATURE], &report), [""; 0]);
        report.sections.set(SECTION, &[1]);
        let said = unread(&[FEATURE], &report).concat();
        assert!(said.contains("self_test"), "{said}");
    }

    #[test]
    fn a_service_as_a_backend_makes_no_agent_unready() {
        let mut attachment = AttachmentReport {
            cluster_ip: Some("10.96.0.9:80".parse().unwrap()),
            ..AttachmentReport::default()
        };
        attachment.coverage.translates_first = Some("program 7 (connect4, /)".to_owned());
        let mut report = crate::core::control::report::fixture::report();
        report.sections.set(SECTION, &attachment);
        let checks: Vec<_> = failings(&report).into_iter().map(|(check, _)| check).collect();
        assert_eq!(checks, [Check::Reach]);
    }
}
