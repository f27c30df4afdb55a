//! Rebuilds of the address filter. Without them a node pays for every address that was a backend once.
//!
//! A rebuild clears bits where they are, since they are those of the maps that programs read. It keeps the addresses that
//! the config maps have from its beginning on, and those that sockets and flows have after that. So what begins meanwhile, with
//! a backend of the maps, is kept too.

use std::{future, io, time::Duration};

use mcs_common::Address;
use serde::{Deserialize, Serialize};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};

use crate::core::{
    control::{
        Report, age, kernel::addresses_in_use, metrics::Families, process,
        programs::InstalledPrograms, report::seconds_since_epoch,
    },
    feature::{Act, Core, Definition, Feature, Follow, Sections, Wait},
    kernel::dataplane::FilterDensity,
};

/// The rebuilds in the list of features.
pub const FEATURE: Definition = Definition {
    start: |_, _| Ok(Some(Box::new(FilterRebuilds::new()))),
    parts: |all| all.expect::<FilterReport>(SECTION),
    lines,
    metrics,
    ..Definition::named("filter_rebuild")
};

/// Its part of the report.
const SECTION: &str = "address_filter";

/// The time from the beginning of a rebuild to the next one. A rebuild takes some 50 ms of CPU time, most of it for the
/// kernel's types.
const REST: Duration = Duration::from_secs(30);

/// The address filter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FilterReport {
    /// How many buckets are set.
    pub density: FilterDensity,
    /// When the bits of addresses that have gone were cleared the last time since the agent started, in seconds since the Unix
    /// epoch.
    pub rebuilt_at: Option<u64>,
    /// Why they could not be cleared; tried again.
    pub problem: Option<String>,
}

/// The rebuilds of the address filter, one at a time.
pub(crate) struct FilterRebuilds {
    next: Instant,
    search: Option<JoinHandle<io::Result<Vec<Address>>>>,
    found: Option<io::Result<Vec<Address>>>,
    /// Buckets that the latest one left.
    left: u32,
    rebuilt_at: Option<u64>,
    problem: Option<String>,
}

impl FilterRebuilds {
    pub(crate) fn new() -> Self {
        let next = Instant::now();
        Self { next, search: None, found: None, left: 0, rebuilt_at: None, problem: None }
    }

    pub(crate) fn report(&self, installed: &InstalledPrograms) -> FilterReport {
        FilterReport {
            density: installed.maps.filter_density(),
            rebuilt_at: self.rebuilt_at,
            problem: self.problem.clone(),
        }
    }

    /// Begins a rebuild if the filter has many more addresses than are `desired`, and than sockets and flows had the last time.
    /// It asks for `desired` only while the filter is dense.
    pub(crate) fn begin_if_due(
        &mut self,
        installed: &mut InstalledPrograms,
        desired: impl FnOnce() -> usize,
    ) {
        let density = installed.maps.filter_density();
        let is_dense = density.is_dense(self.left)
            && density.is_dense(u32::try_from(desired()).unwrap_or(u32::MAX));
        let is_due = self.search.is_none() && self.next <= Instant::now();
        // While programs are switched, some use other config maps.
        if is_dense && is_due && installed.can_watch() {
            self.next = Instant::now() + REST;
            self.search = begin(installed).inspect_err(|error| self.fail(error)).ok();
        }
    }

    /// Waits for the addresses that sockets and flows have. If the future is dropped before, the next call goes on.
    pub(crate) async fn found(&mut self) -> io::Result<Vec<Address>> {
        let Some(search) = &mut self.search else { return future::pending().await };
        let found = search.await;
        self.search = None;
        found.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Ends the rebuild.
    pub(crate) fn finish(
        &mut self,
        found: io::Result<Vec<Address>>,
        installed: &mut InstalledPrograms,
    ) {
        process::trim();
        let before = installed.maps.filter_density().set;
        match found.and_then(|in_use| installed.maps.finish_filter_rebuild(&in_use)) {
            Ok(true) => {
                self.left = installed.maps.filter_density().set;
                self.rebuilt_at = Some(seconds_since_epoch());
                self.problem = None;
                tracing::info!(before, buckets = self.left, "rebuilt the address filter");
            }
            // Larger maps have taken the place of those of its beginning.
            Ok(false) => {}
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        let problem = format!("cannot tell which addresses are in use: {error}");
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!("{problem}; the address filter keeps those of former backends");
        }
        self.problem = Some(problem);
    }
}

impl Feature for FilterRebuilds {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async { self.found = Some(self.found().await) })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        if let Some(found) = self.found.take() {
            self.finish(found, &mut core.installed);
        }
        Box::pin(future::ready(Follow::Report))
    }

    fn each_second(&mut self, core: &mut Core) -> Follow {
        // Before, nobody knows how many addresses the filter needs.
        if core.engine.synced() {
            let usage = || core.engine.usage();
            self.begin_if_due(&mut core.installed, || usage().vips + usage().endpoints);
        }
        Follow::Nothing
    }

    fn report(&self, core: &Core, sections: &mut Sections) {
        sections.set(SECTION, &self.report(&core.installed));
    }
}

fn begin(installed: &mut InstalledPrograms) -> io::Result<JoinHandle<io::Result<Vec<Address>>>> {
    let flows = installed.flow_pins().map_err(io::Error::other)?;
    let state = installed.options.pins.state();
    installed.maps.begin_filter_rebuild()?;
    Ok(spawn_blocking(move || addresses_in_use(&state, &flows)))
}

/// `Address filter: ...`.
fn lines(report: &Report) -> Vec<String> {
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

fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
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
    use crate::core::{
        control::{
            Report,
            task::tests::{World, lists},
        },
        kernel::dataplane::FilterDensity,
    };

    fn part(report: &Report) -> FilterReport {
        report.sections.get(SECTION).unwrap()
    }

    /// A world with a filter that has been dense before, and the rebuild's steps once a report is as wanted.
    async fn rebuild(
        failing: Option<&'static str>,
        is_wanted: impl Fn(&FilterReport) -> bool,
    ) -> (FilterReport, Vec<String>) {
        let mut world = World::of(&[FEATURE]).await;
        world.site.kernel.fill_filter(6_400);
        if let Some(what) = failing {
            world.site.kernel.fail(what);
        }
        let report = world.run_until([lists(1)], |report| is_wanted(&part(report))).await;
        let mut done = world.site.kernel.take_done();
        done.retain(|what| what.ends_with("rebuild") || what == "list addresses in use");
        (part(&report), done)
    }

    #[tokio::test(start_paused = true)]
    async fn a_filter_of_addresses_that_have_gone_is_rebuilt() {
        let (report, done) = rebuild(None, |report| report.rebuilt_at.is_some()).await;
        assert_eq!((report.density.set, report.problem), (0, None));
        assert_eq!(done, ["begin rebuild", "list addresses in use", "finish rebuild"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_filter_stays_while_the_addresses_in_use_are_unknown() {
        let failing = Some("list addresses in use");
        let (report, done) = rebuild(failing, |report| report.problem.is_some()).await;
        assert_eq!((report.density.set, report.rebuilt_at), (6_400, None));
        assert_eq!(done, ["begin rebuild", "list addresses in use"]);
    }

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
