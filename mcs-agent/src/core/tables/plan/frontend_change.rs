//! A frontend that is to be created or changed, and where its entries go.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::once,
    net::SocketAddr,
};

use mcs_common::{Address, FrontendKey};

use super::Shortage;
use crate::core::{
    model::{Backend, Frontend, FrontendId},
    tables::{
        NameMap, NameRecord, Pruning, Realized,
        allocations::Allocations,
        contents::{attributes, backend_address, frontend_key},
    },
};

/// A frontend as it will be.
pub(super) struct FrontendChange<'a> {
    pub(super) id: &'a FrontendId,
    pub(super) key: FrontendKey,
    pub(super) frontend: &'a Frontend,
    /// Its index, if it exists.
    pub(super) index: Option<u32>,
    /// By address, which is the order of their slots.
    pub(super) backends: Vec<PlannedBackend<'a>>,
    /// How many slots it has now.
    former_count: u32,
}

/// A backend that the frontend will have.
pub(super) struct PlannedBackend<'a> {
    address: SocketAddr,
    pub(super) origin: Origin<'a>,
    /// How many slots name it.
    pub(super) slots: u32,
}

#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    /// The frontend has the backend already, with this id: remembered choices of it stay valid.
    Own { id: u32, slots: u32 },
    /// The maps keep the backend for its present UDP clients. From now on it gets new clients again.
    Kept(u32),
    /// The backend is new and needs an id.
    Added(&'a Backend),
}

impl<'a> FrontendChange<'a> {
    /// Creates a frontend that is not in the maps.
    pub(super) fn new(id: &'a FrontendId, frontend: &'a Frontend) -> Self {
        let backends = match_up(frontend, &mut BTreeMap::new(), &BTreeSet::new(), |_, _| false);
        Self { id, key: frontend_key(id), frontend, index: None, backends, former_count: 0 }
    }

    /// Whether the frontend at `index` is as desired, with its slots in the usual order. In a full round most frontends are,
    /// and this check is less work than a change that turns out to be none.
    fn is_needless(realized: &Realized, index: u32, frontend: &Frontend) -> bool {
        let state = realized.state(index);
        let is_same = |(id, wanted): (u32, &Backend)| {
            let backend = realized.backend(id);
            backend.addr == Address::from(wanted.address.ip())
                && backend.port == wanted.address.port()
                && realized.name(NameMap::Clusters, backend.cluster).is_cluster(&wanted.cluster)
        };
        state.extent.count as usize == frontend.slot_count()
            && (state.flags, state.affinity_seconds) == attributes(frontend)
            && realized.name(NameMap::Services, state.service)
                == NameRecord::of_import(&frontend.import)
            && realized.ids(state.extent).zip(frontend.by_slot()).all(is_same)
    }

    /// Changes the frontend at `index`. Without pruning it keeps the backends that it has. `None`: there is nothing to do, or
    /// another import has it, and which of the two owns it is not known before the source has synced.
    pub(super) fn existing(
        realized: &Realized,
        index: u32,
        id: &'a FrontendId,
        frontend: &'a Frontend,
        pruning: Pruning,
    ) -> Option<Self> {
        let service = || realized.name(NameMap::Services, realized.state(index).service);
        if Self::is_needless(realized, index, frontend)
            || (!pruning.is_on() && service() != NameRecord::of_import(&frontend.import))
        {
            return None;
        }
        let extent = realized.state(index).extent;
        let with_address = |id| (backend_address(&realized.backend(id)), id);
        let mut own: BTreeMap<SocketAddr, (u32, u32)> = BTreeMap::new();
        for (address, id) in realized.ids(extent).map(with_address) {
            own.entry(address).or_insert((id, 0)).1 += 1;
        }
        let kept: BTreeSet<(SocketAddr, u32)> = realized.kept_of(index).map(with_address).collect();
        let same_cluster = |id, backend: &Backend| {
            let record = realized.name(NameMap::Clusters, realized.backend(id).cluster);
            record.is_cluster(&backend.cluster)
        };
        let mut backends = match_up(frontend, &mut own, &kept, same_cluster);
        if !pruning.is_on() {
            let stays = |(address, (id, slots))| PlannedBackend {
                address,
                origin: Origin::Own { id, slots },
                slots,
            };
            backends.extend(own.into_iter().map(stays));
        }
        backends.sort_by_key(|planned| planned.address);
        let key = frontend_key(id);
        let change =
            Self { id, key, frontend, index: Some(index), backends, former_count: extent.count };
        let differs = change.changes_backends() || change.changes_attributes(realized);
        differs.then_some(change)
    }

    pub(super) const fn is_new(&self) -> bool {
        self.index.is_none()
    }

    /// How many slots it will have.
    pub(super) fn count(&self) -> u32 {
        self.backends.iter().map(|planned| planned.slots).fold(0, u32::saturating_add)
    }

    /// How many slots more than now; negative for fewer.
    pub(super) fn growth(&self) -> i64 {
        i64::from(self.count()) - i64::from(self.former_count)
    }

    /// The backends that need an id.
    pub(super) fn added(&self) -> impl Iterator<Item = &'a Backend> {
        self.backends.iter().filter_map(|planned| match planned.origin {
            Origin::Own { .. } | Origin::Kept(_) => None,
            Origin::Added(backend) => Some(backend),
        })
    }

    /// Whether it gets other backends or slots than it has.
    pub(super) fn changes_backends(&self) -> bool {
        let is_same = |planned: &PlannedBackend<'_>| matches!(planned.origin, Origin::Own { slots, .. } if slots == planned.slots);
        self.count() != self.former_count || !self.backends.iter().all(is_same)
    }

    /// Whether it gets another import or affinity than it has.
    pub(super) fn changes_attributes(&self, realized: &Realized) -> bool {
        let Some(index) = self.index else { return true };
        let state = realized.state(index);
        (state.flags, state.affinity_seconds) != attributes(self.frontend)
            || realized.name(NameMap::Services, state.service)
                != NameRecord::of_import(&self.frontend.import)
    }
}

/// Finds each desired backend among the frontend's own and its kept backends. Removes from `own` what has a desired
/// address.
fn match_up<'a>(
    wanted: &'a Frontend,
    own: &mut BTreeMap<SocketAddr, (u32, u32)>,
    kept: &BTreeSet<(SocketAddr, u32)>,
    same_cluster: impl Fn(u32, &Backend) -> bool,
) -> Vec<PlannedBackend<'a>> {
    let counts = wanted.slots.counts(wanted.backends.len());
    let backends = wanted.backends.iter().zip(counts);
    backends
        .map(|(backend, slots)| {
            let address = backend.address;
            let is_same = |id: &u32| same_cluster(*id, backend);
            let own = own.remove(&address).filter(|(id, _)| is_same(id));
            let own = own.map(|(id, slots)| Origin::Own { id, slots });
            let kept = || {
                let mut ids = kept.range((address, 0)..=(address, u32::MAX)).map(|(_, id)| *id);
                ids.find(is_same).map(Origin::Kept)
            };
            let origin = own.or_else(kept).unwrap_or(Origin::Added(backend));
            PlannedBackend { address, origin, slots }
        })
        .collect()
}

/// Free entries for everything that a change adds.
pub(super) struct Placement<'a> {
    pub(super) index: u32,
    pub(super) service: u32,
    /// The first slot of the block.
    pub(super) block: u32,
    /// One for each added backend, in order.
    pub(super) ids: Vec<u32>,
    /// The entries of the added backends' clusters.
    pub(super) clusters: BTreeMap<&'a str, u32>,
}

impl<'a> Placement<'a> {
    /// Finds free entries, and takes none. `allocations` are the allocations of `realized`, now or after a wait.
    pub(super) fn find(
        realized: &Realized,
        allocations: &Allocations,
        change: &FrontendChange<'a>,
    ) -> Result<Self, Shortage> {
        let index =
            change.index.or_else(|| allocations.indices.find(1)).ok_or(Shortage::Frontends)?;
        let service = if change.changes_attributes(realized) {
            let name = NameRecord::of_import(&change.frontend.import);
            let mut ids = allocations.names[NameMap::Services as usize].assign(once(name));
            ids.next().flatten().ok_or(Shortage::Services)?
        } else {
            realized.state(index).service
        };
        let slots = if change.changes_backends() { change.count() } else { 0 };
        let block = allocations.blocks.find(slots).ok_or(Shortage::Slots)?;
        let added = change.added().count();
        let ids: Vec<u32> = allocations.backends.each().take(added).collect();
        if ids.len() < added {
            return Err(Shortage::Endpoints);
        }
        let clusters = change.added().map(|backend| &*backend.cluster);
        let clusters: BTreeSet<&str> = clusters.filter(|cluster| !cluster.is_empty()).collect();
        let names = clusters.iter().map(|cluster| NameRecord::of_cluster(cluster));
        let cluster_ids = allocations.names[NameMap::Clusters as usize].assign(names);
        let clusters = clusters.iter().zip(cluster_ids).map(|(name, id)| Some((*name, id?)));
        let clusters = clusters.collect::<Option<_>>().ok_or(Shortage::Clusters)?;
        Ok(Self { index, service, block, ids, clusters })
    }
}
