//! The background comparison of the config maps with the realized state.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::cpu::thread_cpu;
use crate::{
    model::Capacity,
    reconcile::{Audit, MapError, MapReader, Maps, Realized, Step, pass_entries, repaired_entries},
};

/// Time from one slice to the next.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The most slices of a pass, so that it takes at most four minutes.
const SLICES: usize = 960;
/// The least number of entries in a slice.
const LEAST: usize = 1024;
/// The number of repairs of a slice that are logged one by one.
const LOGGED: usize = 8;

/// The results of the audit, which compares the config maps with the realized state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditReport {
    /// Passes since the agent started.
    pub passes: u64,
    /// Entries compared in all of them.
    pub entries: u64,
    /// Entries by map that were changed, missing or foreign, and that the agent restored.
    pub repairs: BTreeMap<String, u64>,
    /// The latest complete pass; absent before the first.
    pub last: Option<AuditPass>,
}

/// The cost of a complete pass.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AuditPass {
    /// Entries compared.
    pub entries: u64,
    /// Time from its start to its end.
    pub seconds: f64,
    /// Its CPU time.
    pub cpu_seconds: f64,
    /// CPU time of the longest slice: no change of the maps waited longer for the audit.
    pub longest_seconds: f64,
}

/// The audit at work.
pub(super) struct Auditor<W> {
    audit: Audit<W>,
    began: Instant,
    pass: AuditPass,
    pub(super) report: AuditReport,
    problem: Option<String>,
}

impl<W: Default + std::fmt::Debug> Auditor<W> {
    pub(super) fn new() -> Self {
        Self {
            audit: Audit::default(),
            began: Instant::now(),
            pass: AuditPass::default(),
            report: AuditReport::default(),
            problem: None,
        }
    }

    /// Starts a new pass: the agent has replaced the maps of the last one.
    pub(super) fn restart(&mut self) {
        self.audit = Audit::default();
        self.began = Instant::now();
        self.pass = AuditPass::default();
    }

    /// Compares the next entries and restores those that differ. Returns whether the report has changed.
    pub(super) fn go_on<M: Maps<Reader: MapReader<Walk = W>>>(
        &mut self,
        realized: &Realized,
        maps: &mut M,
        capacity: Capacity,
    ) -> bool {
        let cpu = thread_cpu();
        let budget = pass_entries(realized.contents(), capacity).div_ceil(SLICES).max(LEAST);
        let slice = self.audit.next_slice(realized.contents(), maps.reader(), capacity, budget);
        let result = slice.and_then(|slice| {
            slice.repairs.iter().try_for_each(|step| maps.write(step))?;
            Ok(slice)
        });
        let cpu = thread_cpu().saturating_sub(cpu).as_secs_f64();
        self.pass.cpu_seconds += cpu;
        self.pass.longest_seconds = self.pass.longest_seconds.max(cpu);
        let slice = match result {
            Ok(slice) => slice,
            Err(error) => return self.fail(error),
        };
        self.problem = None;
        self.pass.entries += slice.entries as u64;
        self.report.entries += slice.entries as u64;
        self.note(&slice.repairs);
        if slice.ends {
            self.pass.seconds = self.began.elapsed().as_secs_f64();
            self.report.passes += 1;
            self.report.last = Some(self.pass);
            self.began = Instant::now();
            self.pass = AuditPass::default();
        }
        slice.ends || !slice.repairs.is_empty()
    }

    fn note(&mut self, repairs: &[Step]) {
        let mut count = 0_usize;
        for step in repaired_entries(repairs) {
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
    }

    fn fail(&mut self, error: MapError) -> bool {
        let problem = format!("{:#}", anyhow::Error::new(error));
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!("cannot audit the maps: {problem}; trying again");
        }
        self.problem = Some(problem);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::testing::MemoryMaps;

    #[test]
    fn a_pass_ends_in_time_and_reports_its_cost() {
        let capacity =
            Capacity { frontends: 4096, endpoints: 100_000, clusters: 250, imports: 4096 };
        let (realized, mut maps) = (Realized::empty(capacity), MemoryMaps::new(capacity));
        maps.write(&Step::InsertVip(mcs_common::Address::from_v4_word(1))).unwrap();
        let mut auditor = Auditor::new();
        let mut slices = 0;
        while auditor.report.passes == 0 {
            auditor.go_on(&realized, &mut maps, capacity);
            slices += 1;
        }
        assert!((SLICES / 2..=SLICES + 10).contains(&slices), "{slices}");
        assert_eq!(auditor.report.repairs["vips"], 1);
        let last = auditor.report.last.unwrap();
        assert_eq!(last.entries, auditor.report.entries);
        assert!(last.entries > 400_000 && last.cpu_seconds > 0.0, "{last:?}");
    }
}
