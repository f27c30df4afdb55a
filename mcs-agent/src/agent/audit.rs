//! The audit: again and again, a thread compares the config maps with what the agent wrote there, and the control task restores
//! what another process has changed.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use super::cpu::thread_cpu;
use crate::{
    dataplane::KernelMapsReader,
    loader::Pins,
    model::Capacity,
    reconcile::{Comparison, MapContents, MapError, Maps, Realized, compare},
};

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
pub(super) struct Pass {
    pub(super) expected: MapContents,
    pub(super) pins: Pins,
    pub(super) capacity: Capacity,
}

/// What a pass has found.
pub(super) type Compared = (Comparison, AuditPass);

/// The audit at work.
pub(super) struct Auditor {
    next: Instant,
    pass: Option<JoinHandle<Result<Compared, MapError>>>,
    pub(super) report: AuditReport,
    problem: Option<String>,
}

impl Auditor {
    pub(super) fn new() -> Self {
        let report = AuditReport::default();
        Self { next: Instant::now() + LEAST_REST, pass: None, report, problem: None }
    }

    /// Waits for the next pass and its end. When this is dropped before, the next call goes on.
    pub(super) async fn next(&mut self, pass: impl FnOnce() -> Pass) -> anyhow::Result<Compared> {
        if self.pass.is_none() {
            tokio::time::sleep_until(self.next.into()).await;
        }
        let running = self.pass.get_or_insert_with(|| {
            let pass = pass();
            spawn_blocking(|| pass.run())
        });
        let compared = running.await;
        self.pass = None;
        let rest = match &compared {
            Ok(Ok((_, cost))) => Duration::from_secs_f64(cost.cpu_seconds).saturating_mul(REST),
            _ => LEAST_REST,
        };
        self.next = Instant::now() + rest.clamp(LEAST_REST, LONGEST_REST);
        Ok(compared.map_err(io::Error::other)??)
    }

    /// Restores the entries that differ still: the agent may have written some of them meanwhile.
    pub(super) fn note(
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

impl Pass {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::{Step, testing::MemoryMaps};

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
}
