use std::collections::BTreeMap;

use crate::model::{Capacity, DesiredState, Frontend};

/// How much all frontends together have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frontends without a usable backend.
    pub refusing: usize,
    /// Backends of all frontends.
    pub endpoints: usize,
    /// The same by source cluster; empty if its slice does not say.
    pub clusters: BTreeMap<String, usize>,
}

impl Totals {
    /// Of all these frontends.
    pub fn of(desired: &DesiredState) -> Self {
        let mut totals = Self::default();
        desired.frontends.values().for_each(|frontend| totals.add(frontend));
        totals
    }

    /// Whether there is room for all backends and source clusters.
    pub(super) fn fit(&self, capacity: Capacity) -> bool {
        let fits = |count: usize, room: u32| u32::try_from(count).is_ok_and(|count| count <= room);
        fits(self.endpoints, capacity.endpoints) && fits(self.clusters.len(), capacity.clusters)
    }

    pub(super) fn add(&mut self, frontend: &Frontend) {
        self.refusing += usize::from(frontend.backends.is_empty());
        self.endpoints += frontend.backends.len();
        for (cluster, backends) in frontend.clusters() {
            match self.clusters.get_mut(&**cluster) {
                Some(count) => *count += backends,
                None => {
                    self.clusters.insert(cluster.to_string(), backends);
                }
            }
        }
    }

    /// Takes away what was added for this frontend.
    pub(super) fn remove(&mut self, frontend: &Frontend) {
        self.refusing -= usize::from(frontend.backends.is_empty());
        self.endpoints -= frontend.backends.len();
        for (cluster, backends) in frontend.clusters() {
            let Some(count) = self.clusters.get_mut(&**cluster) else { continue };
            *count -= backends;
            if *count == 0 {
                self.clusters.remove(&**cluster);
            }
        }
    }
}
