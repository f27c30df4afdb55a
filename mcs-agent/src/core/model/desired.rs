//! The desired state: the result of the rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{
    Capacity, ClusterRun, Departure, Frontend, FrontendId, ImportReport, ObjectKey, Protocol,
    Rejection,
};

/// The VIPs and frontends that the objects ask for, and what the rules say about the objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredState {
    /// The agent serves these addresses, and refuses every port of them that is no frontend.
    pub vips: BTreeSet<IpAddr>,
    /// Addresses that are no VIPs any more, and that the maps keep for a while if they have them.
    pub departed: BTreeMap<IpAddr, Departure>,
    /// The address of each is in `vips`.
    pub frontends: BTreeMap<FrontendId, Frontend>,
    /// The frontends that no endpoint has served for [`KEPT_FOR`](super::KEPT_FOR): clients do not stay any longer.
    pub deserted: Arc<BTreeSet<FrontendId>>,
    /// One per ServiceImport, sorted by name.
    pub imports: Arc<Vec<Arc<ImportReport>>>,
    /// Sorted by object.
    pub rejections: Vec<Rejection>,
}

impl DesiredState {
    /// The frontends of a VIP.
    pub fn frontends_of(&self, ip: IpAddr) -> impl Iterator<Item = &Frontend> {
        let first = FrontendId { ip, port: 0, protocol: Protocol::Tcp };
        let frontends = self.frontends.range(first..).take_while(move |(id, _)| id.ip == ip);
        frontends.map(|(_, frontend)| frontend)
    }

    /// Whether the UDP clients of a backend stay with it. This is kube-proxy's rule
    /// (`pkg/proxy/conntrack/cleanup.go`): what counts is whether the endpoint serves, and not whether new
    /// clients get it. While no endpoint serves, every client stays where it is, for a while.
    pub fn keeps(&self, id: &FrontendId, address: SocketAddr) -> bool {
        self.frontends.get(id).is_some_and(|frontend| {
            let waits = !frontend.is_bounded && !self.deserted.contains(id);
            frontend.is_served_by(address) || (!frontend.serves() && waits)
        })
    }

    /// Whether the import has a frontend of this VIP.
    pub fn serves(&self, import: &ObjectKey, ip: IpAddr) -> bool {
        self.frontends_of(ip).any(|frontend| frontend.import == *import)
    }

    /// The report of an import.
    pub fn report(&self, import: &ObjectKey) -> Option<&ImportReport> {
        Some(&self.imports[self.report_index(import).ok()?])
    }

    /// Adds or replaces the report of an import. Clones of the list keep the former one; an equal report copies nothing.
    pub(crate) fn put_report(&mut self, report: ImportReport) {
        match self.report_index(&report.import) {
            Ok(index) if *self.imports[index] == report => {}
            Ok(index) => Arc::make_mut(&mut self.imports)[index] = Arc::new(report),
            Err(index) => Arc::make_mut(&mut self.imports).insert(index, Arc::new(report)),
        }
    }

    /// Removes the report of an import.
    pub(crate) fn remove_report(&mut self, import: &ObjectKey) {
        if let Ok(index) = self.report_index(import) {
            Arc::make_mut(&mut self.imports).remove(index);
        }
    }

    /// The index of a report, or where to insert it.
    fn report_index(&self, import: &ObjectKey) -> Result<usize, usize> {
        self.imports.binary_search_by(|report| report.import.cmp(import))
    }
}

/// The part of the desired state that can differ from before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DesiredChanges {
    /// Any part.
    Everything,
    /// These parts alone.
    Parts(Parts),
}

/// Some parts of the desired state, whether they are in it or not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// Frontends.
    pub frontends: BTreeSet<FrontendId>,
    /// VIPs.
    pub vips: BTreeSet<IpAddr>,
}

impl Default for DesiredChanges {
    fn default() -> Self {
        Self::Parts(Parts::default())
    }
}

impl From<BTreeSet<FrontendId>> for DesiredChanges {
    fn from(frontends: BTreeSet<FrontendId>) -> Self {
        Self::Parts(Parts { frontends, ..Parts::default() })
    }
}

impl DesiredChanges {
    /// Adds more changes.
    pub fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Parts(parts), Self::Parts(more)) => {
                parts.frontends.extend(more.frontends);
                parts.vips.extend(more.vips);
            }
            (all, _) => *all = Self::Everything,
        }
    }
}

/// Totals over all frontends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frontends without a usable backend.
    pub refusing: usize,
    /// Frontends that are [bounded](Frontend::is_bounded).
    pub bounded: usize,
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
    pub(crate) fn fit(&self, capacity: Capacity) -> bool {
        let fits = |count: usize, max: u32| u32::try_from(count).is_ok_and(|count| count <= max);
        fits(self.slots, capacity.endpoints) && fits(self.clusters.len(), capacity.clusters)
    }

    pub(crate) fn add(&mut self, frontend: &Frontend) {
        self.refusing += usize::from(frontend.backends.is_empty());
        self.bounded += usize::from(frontend.is_bounded);
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
    pub(crate) fn remove(&mut self, frontend: &Frontend) {
        self.refusing -= usize::from(frontend.backends.is_empty());
        self.bounded -= usize::from(frontend.is_bounded);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::Backend;

    #[test]
    fn clients_stay_with_what_serves_and_for_a_while_where_nothing_does() {
        let backend = |text: &&str| Backend { address: text.parse().unwrap(), cluster: "".into() };
        let (selected, other, gone) = ("10.1.0.1:53", "10.1.0.2:53", "10.1.0.3:53");
        let id = FrontendId { ip: "10.0.0.1".parse().unwrap(), port: 53, protocol: Protocol::Udp };
        for (backends, also_serving, is_deserted, expected) in [
            (vec![selected], vec![], false, [true, false, false]),
            (vec![selected], vec![other], false, [true, true, false]),
            (vec![], vec![other], false, [false, true, false]),
            (vec![], vec![], false, [true, true, true]),
            (vec![], vec![], true, [false, false, false]),
        ] {
            let frontend = Frontend {
                also_serving: also_serving.iter().map(backend).collect(),
                ..Frontend::plain(
                    ObjectKey::new("shop", "dns"),
                    backends.iter().map(backend).collect(),
                )
            };
            let desired = DesiredState {
                frontends: [(id, frontend)].into(),
                deserted: Arc::new(is_deserted.then_some(id).into_iter().collect()),
                ..DesiredState::default()
            };
            let kept = [selected, other, gone].map(|one| desired.keeps(&id, one.parse().unwrap()));
            assert_eq!(kept, expected, "{desired:?}");
        }
    }
}
