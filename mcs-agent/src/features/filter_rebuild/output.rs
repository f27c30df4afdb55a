//! The address filter in `status` and in the metrics.

use super::{FilterReport, SECTION};
use crate::core::control::{Report, age, metrics::Families};

/// `Address filter: ...`.
pub(super) fn lines(report: &Report) -> Vec<String> {
    report.sections.get(SECTION).as_ref().map(address_filter).into_iter().collect()
}

/// How much traffic without a VIP pays, and since when it pays for nothing that has gone.
fn address_filter(report: &FilterReport) -> String {
    let percent = |buckets| report.density.share(buckets) * 100.0;
    let costs = format!(
        "Address filter: {:.1} % of addresses cost a look-up, {:.1} % as backends",
        percent(report.density.set),
        percent(report.density.backends)
    );
    let rebuilt = report.rebuilt_at.map(|at| format!("rebuilt {} ago", age(at)));
    let problem = report.problem.as_ref();
    let problem = problem.map(|why| format!("not rebuilt: {why}; the agent tries again"));
    [Some(costs), rebuilt, problem].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

pub(super) fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
    let report: FilterReport = report.sections.get(SECTION).unwrap_or_default();
    let density = report.density;
    families.gauges(
        "mcs_address_filter_density",
        "Share of addresses for which programs look further: any of them, or as a backend",
        ["kind"],
        [("any", density.set), ("backend", density.backends)]
            .map(|(kind, buckets)| ([kind], density.share(buckets))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::kernel::dataplane::FilterDensity;

    #[test]
    fn the_address_filter_tells_what_it_costs() {
        let density = FilterDensity { buckets: 1000, set: 250, backends: 240 };
        let mut report = FilterReport { density, ..FilterReport::default() };
        let costs = "Address filter: 25.0 % of addresses cost a look-up, 24.0 % as backends";
        assert_eq!(address_filter(&report), costs);
        report.problem = Some("no types".to_owned());
        let said = format!("{costs}; not rebuilt: no types; the agent tries again");
        assert_eq!(address_filter(&report), said);
    }
}
