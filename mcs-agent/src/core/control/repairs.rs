//! What other processes changed or removed and the agent repaired, and since when the source cannot be read: for logs and
//! reports.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::core::{
    kernel::loader::{Repair, Tampering},
    model::SourceStatus,
};

/// The number of repairs that the report lists.
const LATEST: usize = 8;

/// Repairs of pins and attachments that other processes changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Repairs {
    /// Repairs since the agent started, by kind of tampering.
    pub counts: BTreeMap<Tampering, u64>,
    /// The latest repairs, the newest last. Repairs on devices are in the log only.
    pub latest: VecDeque<Repaired>,
    /// What the agent cannot repair, and why. It tries again.
    pub problems: Vec<String>,
}

/// A repair in the status report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Repaired {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// What the agent found and did.
    pub what: String,
}

/// The result of a check of pins, hooks and the cgroup.
#[derive(Debug, Default)]
pub(super) struct RepairOutcome {
    /// What was damaged and is repaired.
    pub(super) repairs: Vec<Repair>,
    /// What cannot be repaired, and why.
    pub(super) problems: Vec<String>,
}

impl RepairOutcome {
    pub(super) fn add(&mut self, result: anyhow::Result<Vec<Repair>>) {
        match result {
            Ok(repairs) => self.repairs.extend(repairs),
            Err(error) => self.problems.push(format!("{error:#}")),
        }
    }
}

impl Repairs {
    /// Counts and logs the repairs and problems of one check. Returns whether any are new.
    pub(super) fn note(&mut self, found: RepairOutcome, now: u64) -> bool {
        let is_new = !found.repairs.is_empty() || found.problems != self.problems;
        for repair in found.repairs {
            tracing::warn!("{}", repair.what);
            *self.counts.entry(repair.tampering).or_default() += 1;
            self.latest.push_back(Repaired { at: now, what: repair.what });
        }
        while self.latest.len() > LATEST {
            self.latest.pop_front();
        }
        for problem in found.problems.iter().filter(|problem| !self.problems.contains(problem)) {
            tracing::warn!("{problem}; trying again");
        }
        self.problems = found.problems;
        is_new
    }
}

/// The resources that cannot be read now, with the time of the failure in seconds since the Unix epoch.
#[derive(Debug, Default)]
pub(super) struct SourceLost(pub(super) BTreeMap<String, u64>);

impl SourceLost {
    /// Compares with the status after a batch. `now` counts for what fails for the first time.
    pub(super) fn update(&mut self, status: &SourceStatus, now: u64) {
        let is_lost = |place: &str| status.problems.iter().any(|problem| problem.place == place);
        let lost: Vec<(&str, Option<u64>)> = if status.kinds.is_empty() {
            status.problems.first().map(|_| (status.whole, None)).into_iter().collect()
        } else {
            let kinds = status.kinds.iter();
            let lost = kinds.filter(|kind| kind.known_until.is_some() || is_lost(&kind.resource));
            lost.map(|kind| (&*kind.resource, kind.known_until)).collect()
        };
        let noticed = |resource| self.0.get(resource).copied().unwrap_or(now);
        self.0 = lost
            .into_iter()
            .map(|(resource, known)| {
                (resource.to_owned(), known.unwrap_or_else(|| noticed(resource)))
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::SourceProblem;

    fn repair(number: usize) -> Repair {
        Repair { tampering: Tampering::Pin, what: format!("pin {number}") }
    }

    #[test]
    fn all_are_counted_and_the_latest_listed() {
        let mut repairs = Repairs::default();
        assert!(!repairs.note(RepairOutcome::default(), 1));
        for number in 0..=LATEST {
            assert!(
                repairs.note(RepairOutcome { repairs: vec![repair(number)], problems: vec![] }, 2)
            );
        }
        assert_eq!(repairs.counts[&Tampering::Pin], 9);
        let latest: Vec<_> = repairs.latest.iter().map(|one| one.what.as_str()).collect();
        assert_eq!((latest.len(), latest[0], latest[7]), (8, "pin 1", "pin 8"));
    }

    #[test]
    fn a_problem_changes_the_report_when_it_begins_and_when_it_ends() {
        let found = || RepairOutcome { repairs: vec![], problems: vec!["no bpffs".to_owned()] };
        let mut repairs = Repairs::default();
        assert!(repairs.note(found(), 1));
        assert!(!repairs.note(found(), 2));
        assert!(repairs.note(RepairOutcome::default(), 3));
        assert!(repairs.problems.is_empty());
    }

    #[test]
    fn a_problem_counts_from_its_first_batch() {
        let problem = SourceProblem { place: "web.yaml".to_owned(), message: "cut".to_owned() };
        let broken =
            SourceStatus { problems: vec![problem], whole: "files", ..SourceStatus::default() };
        let mut lost = SourceLost::default();
        lost.update(&broken, 5);
        lost.update(&broken, 9);
        assert_eq!(lost.0, [("files".to_owned(), 5)].into());
        lost.update(&SourceStatus::default(), 10);
        assert!(lost.0.is_empty());
    }
}
