//! Totals over all frontends, kept up to date from round to round.

use std::collections::BTreeMap;

use crate::model::{Capacity, ClusterRun, DesiredState, Frontend};

/// Totals over all frontends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frontends without a usable backend.
    pub refusing: usize,
    /// Slots of all frontends: one for each backend, or several; and what they hold.
    pub slots: usize,
    /// Backends by source cluster. The empty name: the slice names none.
    pub clusters: BTreeMap<String, usize>,
}

impl Totals {
    /// Counts all frontends of a desired state.
    pub fn of(desired: &DesiredState) -> Self {
        let mut totals = Self::default();
        desired.frontends.values().for_each(|frontend| totals.add(frontend));
        totals
    }

    /// Whether all backends and source clusters fit.
    pub(super) fn fit(&self, capacity: Capacity) -> bool {
        let fits = |count: usize, max: u32| u32::try_from(count).is_ok_and(|count| count <= max);
        fits(self.slots, capacity.endpoints) && fits(self.clusters.len(), capacity.clusters)
    }

    pub(super) fn add(&mut self, frontend: &Frontend) {
        self.refusing += usize::from(frontend.backends.is_empty());
        self.slots += frontend.room();
        for ClusterRun { cluster, backends } in frontend.clusters() {
            match self.clusters.get_mut(&**cluster) {
                Some(count) => *count += backends,
                None => {
                    self.clusters.insert(cluster.to_string(), backends);
                }
            }
        }
    }

    /// Subtracts a frontend that was added before.
    pub(super) fn remove(&mut self, frontend: &Frontend) {
        self.refusing -= usize::from(frontend.backends.is_empty());
        self.slots -= frontend.room();
        for ClusterRun { cluster, backends } in frontend.clusters() {
            let Some(count) = self.clusters.get_mut(&**cluster) else { continue };
            *count -= backends;
            if *count == 0 {
                self.clusters.remove(&**cluster);
            }
        }
    }
}
