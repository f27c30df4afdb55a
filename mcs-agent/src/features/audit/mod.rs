//! The audit: again and again, a thread compares the config maps with what the agent wrote there, and the control task restores
//! what another process has changed.

use std::{
    collections::BTreeMap,
    future::ready,
    io,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::core::{
    control::{
        Report,
        metrics::{Families, bytes},
        process::thread_cpu,
    },
    feature::{Act, Core, Definition, Feature, Follow, Sections, Wait},
    kernel::{dataplane::KernelMapsReader, loader::Pins},
    model::Capacity,
    tables::{Comparison, MapContents, MapError, Maps, Realized, audited_maps, compare},
};

/// The audit in the list of features.
pub const FEATURE: Definition = Definition {
    start: |_, _| Ok(Some(Box::new(Auditor::new()))),
    parts: |all| all.expect::<AuditReport>(SECTION),
    lines,
    metrics,
    ..Definition::named("audit")
};

/// Its part of the report.
const SECTION: &str = "audit";

/// From the end of a pass to the next one: this many times the CPU time that it took, within these bounds.
const REST: u32 = 800;
const LEAST_REST: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_mins(3);
/// The number of repairs of a pass that are logged one by one.
const LOGGED: u64 = 8;

/// The results of the audit, which compares the config maps with the realized state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditReport {
    /// Passes since the agent started.
    pub passes: u64,
    /// Entries compared in all of them.
    pub entries: u64,
    /// Entries by map that were changed, missing or foreign, and that the agent restored.
    pub repairs: BTreeMap<String, u64>,
    /// The latest pass; absent before the first.
    pub last: Option<AuditPass>,
}

/// The cost of a pass.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditPass {
    /// Entries compared.
    pub entries: u64,
    /// Time from its start to its end.
    pub seconds: f64,
    /// Its CPU time, of a thread that no change waits for.
    pub cpu_seconds: f64,
}

/// What a pass compares.
#[derive(Debug)]
pub(crate) struct PassInput {
    pub(crate) expected: MapContents,
    pub(crate) pins: Pins,
    pub(crate) capacity: Capacity,
}

/// What a pass has found.
pub(crate) type Compared = (Comparison, AuditPass);

/// The audit at work.
pub(crate) struct Auditor {
    next: Instant,
    pass: Option<JoinHandle<Result<Compared, MapError>>>,
    ended: Option<Result<Result<Compared, MapError>, JoinError>>,
    pub(crate) report: AuditReport,
    problem: Option<String>,
}

impl Auditor {
    pub(crate) fn new() -> Self {
        let report = AuditReport::default();
        Self { next: Instant::now() + LEAST_REST, pass: None, ended: None, report, problem: None }
    }

    /// Waits until a pass is due, or has ended.
    async fn wait(&mut self) {
        match &mut self.pass {
            None => tokio::time::sleep_until(self.next.into()).await,
            Some(pass) => self.ended = Some(pass.await),
        }
    }

    /// Ends the pass that has ended, and notes when the next one begins.
    fn end(
        &mut self,
        compared: Result<Result<Compared, MapError>, JoinError>,
    ) -> anyhow::Result<Compared> {
        self.pass = None;
        let rest = match &compared {
            Ok(Ok((_, cost))) => Duration::from_secs_f64(cost.cpu_seconds).saturating_mul(REST),
            _ => LEAST_REST,
        };
        self.next = Instant::now() + rest.clamp(LEAST_REST, LONGEST_REST);
        Ok(compared.map_err(io::Error::other)??)
    }

    /// Restores the entries that differ still: the agent may have written some of them meanwhile.
    pub(crate) fn note(
        &mut self,
        compared: anyhow::Result<Compared>,
        realized: &Realized,
        maps: &mut impl Maps,
    ) {
        let noted = compared.and_then(|(comparison, cost)| {
            self.repair(&comparison, realized, maps)?;
            self.report.passes += 1;
            self.report.entries += cost.entries;
            self.report.last = Some(cost);
            Ok(())
        });
        let problem = noted.err().map(|error| format!("{error:#}"));
        if let Some(problem) = problem.as_ref().filter(|_| self.problem != problem) {
            tracing::warn!("cannot audit the maps: {problem}; trying again");
        }
        self.problem = problem;
    }

    fn repair(
        &mut self,
        comparison: &Comparison,
        realized: &Realized,
        maps: &mut impl Maps,
    ) -> Result<(), MapError> {
        let mut count = 0;
        for entry in &comparison.different {
            let repairs = entry.repairs(realized.contents(), maps.reader())?;
            let Some(step) = repairs.first() else { continue };
            repairs.iter().try_for_each(|step| maps.write(step))?;
            let map = step.map().unwrap_or_default();
            *self.report.repairs.entry(map.to_owned()).or_default() += 1;
            count += 1;
            if count <= LOGGED {
                tracing::warn!("another process changed map {map}; repaired: {step}");
            }
        }
        if count > LOGGED {
            tracing::warn!("another process changed {} more entries; repaired", count - LOGGED);
        }
        Ok(())
    }
}

impl Feature for Auditor {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(Self::wait(self))
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        let follow = if let Some(ended) = self.ended.take() {
            let compared = self.end(ended);
            self.note(compared, core.engine.realized(), &mut core.installed);
            Follow::Report
        } else {
            let pass = PassInput {
                expected: core.engine.realized().contents().clone(),
                pins: core.installed.options.pins.clone(),
                capacity: core.engine.realized().capacity(),
            };
            self.pass = Some(spawn_blocking(|| pass.run()));
            Follow::Nothing
        };
        Box::pin(ready(follow))
    }

    fn report(&self, _: &Core, sections: &mut Sections) {
        sections.set(SECTION, &self.report);
    }
}

impl PassInput {
    fn run(self) -> Result<Compared, MapError> {
        let (began, cpu) = (Instant::now(), thread_cpu());
        let maps = KernelMapsReader::open_with_filter(&self.pins.config(), &self.pins.hints())?;
        let comparison = compare(&self.expected, &maps, self.capacity)?;
        let cost = AuditPass {
            entries: comparison.entries as u64,
            seconds: began.elapsed().as_secs_f64(),
            cpu_seconds: thread_cpu().saturating_sub(cpu).as_secs_f64(),
        };
        Ok((comparison, cost))
    }
}

/// `Audit: ...`.
fn lines(report: &Report) -> Vec<String> {
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

fn metrics(report: &Report, families: &mut Families) -> prometheus::Result<()> {
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
    use std::net::IpAddr;

    use super::*;
    use crate::core::{
        control::task::tests::{World, lists},
        tables::{Step, testing::MemoryMaps},
    };

    #[tokio::test(start_paused = true)]
    async fn what_the_audit_finds_is_written_to_the_maps() {
        let mut world = World::of(&[]).await;
        world.run_until([lists(2)], |report| report.synced).await;
        let core = &mut world.control.core;
        let [own, foreign] = [1, 9].map(|last| IpAddr::from([10, 0, 0, last]).into());
        for step in [Step::DeleteVip(own), Step::InsertVip(foreign)] {
            core.installed.maps.maps.write(&step).unwrap();
        }
        let compared = |core: &Core| {
            let (expected, maps) = (core.engine.realized().contents(), core.installed.reader());
            Ok((compare(expected, maps, core.installed.capacity()).unwrap(), AuditPass::default()))
        };
        let mut auditor = Auditor::new();
        world.site.kernel.fail("write");
        auditor.note(compared(core), core.engine.realized(), &mut core.installed);
        assert_eq!(auditor.report.passes, 0, "a repair has failed");
        auditor.note(compared(core), core.engine.realized(), &mut core.installed);
        assert_eq!(auditor.report.passes, 1);
        assert_eq!(auditor.report.repairs, [("vips".to_owned(), 2)].into());
        assert_eq!(world.contents().vips.len(), 2);
    }

    #[test]
    fn what_the_agent_has_written_meanwhile_is_no_repair() {
        let capacity = Capacity { vips: 8, frontends: 8, endpoints: 8, clusters: 2, imports: 8 };
        let (realized, mut maps) = (Realized::empty(capacity), MemoryMaps::new(capacity));
        let [own, foreign] = [1, 2].map(mcs_common::Address::from_v4_word);
        for vip in [own, foreign] {
            maps.write(&Step::InsertVip(vip)).unwrap();
        }
        let comparison = compare(realized.contents(), &maps, capacity).unwrap();
        let realized = realized.after(&[Step::InsertVip(own)]);
        let mut auditor = Auditor::new();
        auditor.note(Ok((comparison, AuditPass::default())), &realized, &mut maps);
        assert_eq!(auditor.report.repairs, [("vips".to_owned(), 1)].into());
        assert_eq!(auditor.report.passes, 1);
        assert_eq!(maps.contents(), realized.contents());
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
}
