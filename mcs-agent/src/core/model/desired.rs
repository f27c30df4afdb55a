//! The desired state: the frontends and VIPs that the maps should have, and what becomes of VIPs that are not served any
//! more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, iter,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use mcs_kube::ObjectKey;
use serde::{Deserialize, Serialize};

use super::{Capacity, FrontendId, ImportReport, Protocol, Rejection};

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

/// How long clients stay with a backend while no endpoint of its frontend serves, or after its frontend was deleted. It is
/// the timeout of a UDP flow without replies (`nf_conntrack_udp_timeout`). An empty moment of a roll-out is shorter.
pub const KEPT_FOR: Duration = Duration::from_secs(30);

/// An address and port that a frontend leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Backend {
    /// The pod's address and port. The address is of the frontend's IP family.
    pub address: SocketAddr,
    /// The source cluster; empty if the slice names none.
    pub cluster: Arc<str>,
}

/// The wanted contents of one frontend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// The ServiceImport that holds the frontend.
    pub import: ObjectKey,
    /// The port's name; empty if unnamed.
    pub port_name: String,
    /// Seconds of ClientIP affinity, 1 to 86400. `None`: no affinity.
    pub affinity_seconds: Option<u32>,
    /// Sorted; each address comes once. If there are none, every client is refused.
    pub backends: Vec<Backend>,
    /// How many slots each of `backends` has.
    pub slots: Slots,
    /// Endpoints that serve and are not in `backends`: of another zone, of a drained cluster, or terminating. New clients do
    /// not get them. A UDP backend that leaves `backends` is kept while it is here. Sorted; for TCP it is empty, unless the
    /// agent destroys sockets or the frontend is bounded.
    pub also_serving: Vec<Backend>,
    /// Places that it keeps for backends that it had and that were found dead: no other frontend takes them meanwhile.
    pub held: usize,
    /// Whether clients, of TCP too, leave an address at once that is in neither list, although nothing else serves.
    pub is_bounded: bool,
}

impl Frontend {
    /// A frontend with one slot for each of these backends, and nothing else.
    pub const fn plain(import: ObjectKey, backends: Vec<Backend>) -> Self {
        Self {
            import,
            port_name: String::new(),
            affinity_seconds: None,
            backends,
            slots: Slots::ONE_EACH,
            also_serving: Vec::new(),
            held: 0,
            is_bounded: false,
        }
    }

    /// The backend of each slot.
    pub fn by_slot(&self) -> impl Iterator<Item = &Backend> {
        let counts = self.slots.counts(self.backends.len());
        self.backends
            .iter()
            .zip(counts)
            .flat_map(|(one, count)| iter::repeat_n(one, count as usize))
    }

    /// How many slots it has in the maps. No backend is without a slot.
    pub fn slot_count(&self) -> usize {
        self.slots.total(self.backends.len())
    }

    /// The room that it takes: its slots, and what it holds.
    pub fn room(&self) -> usize {
        self.slot_count() + self.held
    }

    /// Limits what it holds to what it had.
    pub fn hold_of(&mut self, former: Option<&Self>) {
        let had = former.map_or(0, Self::room);
        self.held = self.held.min(had.saturating_sub(self.slot_count()));
    }

    /// Whether any endpoint serves.
    pub fn serves(&self) -> bool {
        !self.backends.is_empty() || !self.also_serving.is_empty()
    }

    /// Whether the endpoint with this address serves, whether or not new clients get it.
    pub fn is_served_by(&self, address: SocketAddr) -> bool {
        let mut serving = [&self.backends, &self.also_serving].into_iter();
        serving.any(|list| find(list, address).is_some())
    }

    /// The backend with this address, if new clients get it.
    pub fn backend(&self, address: SocketAddr) -> Option<&Backend> {
        find(&self.backends, address)
    }

    /// The source clusters of its backends, in the order of the backends.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterRun<'_>> {
        let runs = self.backends.chunk_by(|one, next| one.cluster == next.cluster);
        runs.map(|run| ClusterRun { cluster: &run[0].cluster, backends: run.len() })
    }
}

/// The backend with this address in a sorted list.
fn find(list: &[Backend], address: SocketAddr) -> Option<&Backend> {
    let index = list.binary_search_by_key(&address, |one| one.address).ok()?;
    list.get(index)
}

/// Consecutive backends of one source cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterRun<'a> {
    /// Empty if the slice names none.
    pub cluster: &'a Arc<str>,
    /// How many there are.
    pub backends: usize,
}

/// The number of slots of each backend of a frontend, in the order of the backends. A new client gets each slot of the
/// frontend equally often.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots(Option<Box<[u32]>>);

impl Slots {
    /// One slot for each backend.
    pub const ONE_EACH: Self = Self(None);

    /// The number of slots of each backend, in their order.
    pub fn new(counts: impl IntoIterator<Item = u32>) -> Self {
        let counts: Box<[u32]> = counts.into_iter().collect();
        Self(counts.iter().any(|count| *count != 1).then_some(counts))
    }

    /// The number of slots of each of `backends` backends.
    pub fn counts(&self, backends: usize) -> impl Iterator<Item = u32> {
        let given = self.0.as_deref().unwrap_or_default();
        given.iter().copied().chain(iter::repeat(1)).take(backends)
    }

    /// The number of slots of all `backends` backends.
    pub fn total(&self, backends: usize) -> usize {
        match &self.0 {
            None => backends,
            Some(counts) => counts.iter().map(|count| *count as usize).sum(),
        }
    }
}

/// What the programs do with an address that was a VIP. Packets of its flows go on to their backends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// Another dataplane may serve the address: the programs leave everything else to it.
    HandedBack,
    /// The import was deleted, and nobody else can have the address: the programs refuse everything else.
    Gone,
}

impl Departure {
    /// What it means for clients.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::HandedBack => {
                "another dataplane may serve it; flows go on to their backends until they end"
            }
            Self::Gone => "its import was deleted; new connections are refused for five minutes",
        }
    }

    /// The name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HandedBack => "handed_back",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandedBack => "handed back",
            Self::Gone => "gone",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
