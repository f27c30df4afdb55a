//! Records since when each resource of the source cannot be read.

use std::collections::BTreeMap;

use crate::core::model::SourceStatus;

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
