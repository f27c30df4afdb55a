//! How many endpoints of an import are ready, by the clusters that export it: the condition `EndpointsReady`.

use std::{collections::BTreeMap, ops::AddAssign};

use super::{ClusterId, Condition, ConditionStatus, ConditionType, Conflict, IpFamily};

/// Endpoints, and how many of them are ready.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct EndpointCount {
    /// All.
    pub all: usize,
    /// Those that are ready for clients of the import.
    pub ready: usize,
}

impl AddAssign for EndpointCount {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.ready += other.ready;
    }
}

/// The endpoints of each cluster, by their family.
#[derive(Default, Debug)]
pub(super) struct Endpoints(BTreeMap<ClusterId, BTreeMap<IpFamily, EndpointCount>>);

impl Endpoints {
    /// A cluster exports the service.
    pub(super) fn note_cluster(&mut self, cluster: &ClusterId) {
        self.0.entry(cluster.clone()).or_default();
    }

    /// Counts those of a slice.
    pub(super) fn add(&mut self, cluster: &ClusterId, family: IpFamily, count: EndpointCount) {
        *self.0.entry(cluster.clone()).or_default().entry(family).or_default() += count;
    }

    /// Sets the number of endpoints that each conflict costs.
    pub(super) fn weigh(&self, conflicts: &mut [Conflict]) {
        for loss in conflicts.iter_mut().flat_map(|conflict| &mut conflict.losses) {
            loss.endpoints = self.0.get(&loss.cluster).map_or(0, |families| count(families).all);
        }
    }

    /// The condition of the import.
    pub(super) fn condition(&self, cut: impl Fn(String) -> String) -> Condition {
        let mut total = EndpointCount::default();
        let mut told = Vec::new();
        for (cluster, families) in &self.0 {
            let count = count(families);
            total += count;
            told.push(format!("{cluster} {} of {}", count.ready, count.all));
        }
        let message = format!("{} of {} ready: {}", total.ready, total.all, told.join(", "));
        let (status, reason) = match total.ready {
            0 => (ConditionStatus::False, "NoneReady"),
            _ => (ConditionStatus::True, "Ready"),
        };
        Condition::new(ConditionType::EndpointsReady, status, reason, cut(message))
    }
}

/// A pod with addresses of two families counts once.
fn count(families: &BTreeMap<IpFamily, EndpointCount>) -> EndpointCount {
    families.values().copied().max().unwrap_or_default()
}
