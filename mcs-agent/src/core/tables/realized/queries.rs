//! What the realized state says of frontends and their backends, for the rules and for stale sockets.

use std::{net::SocketAddr, sync::Arc};

use mcs_common::{BackendRef, FrontendKey, VipMode};

use super::Realized;
use crate::core::{
    model::{Backend, DesiredState, Frontend, FrontendId, Slots},
    tables::{
        NameMap,
        contents::{backend_address, frontend_id, frontend_key},
    },
};

impl Realized {
    /// The frontends in the maps as a desired state. Port names are empty: no map has them.
    pub fn in_force(&self) -> DesiredState {
        let clusters: Vec<Arc<str>> = self.contents.names[NameMap::Clusters as usize]
            .iter()
            .map(|name| name.cluster().into())
            .collect();
        let served = |id| {
            let backend = self.backend(id);
            let cluster = clusters.get(backend.cluster as usize).cloned().unwrap_or_default();
            Backend { address: backend_address(&backend), cluster }
        };
        let frontends = self.frontends().filter_map(|key| {
            let state = self.state(self.index(&key)?);
            let mut by_slot: Vec<_> = self.ids(state.extent).map(served).collect();
            by_slot.sort();
            let runs = by_slot.chunk_by(|one, next| one == next);
            let count = |run: &[Backend]| u32::try_from(run.len()).unwrap_or(u32::MAX);
            let slots = Slots::new(runs.map(count));
            by_slot.dedup();
            let frontend = Frontend {
                affinity_seconds: (state.affinity_seconds > 0).then_some(state.affinity_seconds),
                slots,
                ..Frontend::plain(self.name(NameMap::Services, state.service).import(), by_slot)
            };
            Some((frontend_id(&key)?, frontend))
        });
        DesiredState {
            vips: self
                .contents
                .vips_of_mode(|mode| mode == VipMode::SERVED)
                .map(|(vip, _)| vip.to_ip())
                .collect(),
            departed: self.departed(),
            frontends: frontends.collect(),
            ..DesiredState::default()
        }
    }

    /// The backends that clients of this frontend get or keep: none if the frontend is not in the maps. `None` if it is
    /// damaged.
    pub fn reachable_backends(&self, key: &FrontendKey) -> Option<Vec<SocketAddr>> {
        if self.damaged().contains(key) {
            return None;
        }
        let Some(index) = self.index(key) else { return Some(Vec::new()) };
        let ids = self.ids(self.state(index).extent).chain(self.kept_of(index));
        Some(ids.map(|id| backend_address(&self.backend(id))).collect())
    }

    /// The backends that new clients of a frontend get, a backend for each slot.
    pub fn served(&self, id: FrontendId) -> impl Iterator<Item = (BackendRef, SocketAddr)> {
        let index = self.index(&frontend_key(&id));
        let ids = index.into_iter().flat_map(|index| self.ids(self.state(index).extent));
        ids.map(|id| {
            let backend = self.backend(id);
            (BackendRef { id, generation: backend.generation }, backend_address(&backend))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::core::{
        model::Capacity,
        tables::fixtures::{desired, frontend, id, maps},
    };

    #[test]
    fn what_was_wanted_is_read_back() {
        let wanted = desired([
            (id("10.0.0.1", 80), frontend("web", &[("10.1.0.1:80", "east"), ("10.1.0.2:80", "")])),
            (id("fd00::1", 80), frontend("shop", &[])),
        ]);
        let capacity = Capacity { vips: 4, frontends: 4, endpoints: 8, clusters: 2, imports: 4 };
        assert_eq!(maps(capacity, &[&wanted]).1.in_force(), wanted);
    }
}
