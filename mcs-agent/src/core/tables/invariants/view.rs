//! What readers ought to find.

use std::{collections::BTreeMap, net::SocketAddr};

use mcs_common::Extent;

use crate::core::{
    model::{Backend, DesiredState, Frontend, FrontendId},
    tables::{BackendView, FrontendStatus, FrontendView, MapView, Pruning},
};

/// Where a complete plan leads from here.
pub(super) fn after(before: &MapView, desired: &DesiredState, pruning: Pruning) -> MapView {
    let mut after = if pruning == Pruning::On { MapView::default() } else { before.clone() };
    after.vips.extend(&desired.vips);
    for (id, frontend) in &desired.frontends {
        let wanted = wanted(id, frontend);
        let merged = match before.frontends.get(id) {
            Some(former) if pruning == Pruning::Off => merge(former, wanted),
            _ => wanted,
        };
        after.frontends.insert(*id, merged);
    }
    after
}

/// A frontend without its places in the maps.
fn wanted(id: &FrontendId, frontend: &Frontend) -> FrontendView {
    let counts = frontend.slots.counts(frontend.backends.len());
    let backend = |(one, slots): (&Backend, u32)| BackendView {
        address: one.address,
        cluster: one.cluster.to_string(),
        id: 0,
        slots,
        generation: 0,
    };
    let mut backends: Vec<_> = frontend.backends.iter().zip(counts).map(backend).collect();
    backends.sort();
    FrontendView {
        import: frontend.import.clone(),
        frontend: *id,
        affinity_seconds: frontend.affinity_seconds,
        state: FrontendStatus::Ready,
        backends,
        kept: Vec::new(),
        index: 0,
        extent: Extent::default(),
    }
}

/// While sources have yet to sync, backends are only added, and a frontend of another service is left alone.
fn merge(former: &FrontendView, wanted: FrontendView) -> FrontendView {
    if former.import != wanted.import {
        return former.clone();
    }
    let both = former.backends.iter().chain(&wanted.backends);
    let both: BTreeMap<SocketAddr, _> = both.map(|one| (one.address, one.clone())).collect();
    FrontendView { backends: both.into_values().collect(), ..wanted }
}
