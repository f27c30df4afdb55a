//! Frontends and their backends, as the rules want them.

use std::{iter, net::SocketAddr, sync::Arc, time::Duration};

use mcs_kube::ObjectKey;
use serde::{Deserialize, Serialize};

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
