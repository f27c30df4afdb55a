//! Random things to want, from pools so small that they meet.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytemuck::{AnyBitPattern, Zeroable};
use mcs_common::{Extent, FrontendState};
use proptest::{collection, option, prelude::*, sample::Index};

use crate::core::{
    model::{Backend, Capacity, DesiredState, Frontend, FrontendId, ObjectKey, Protocol, Slots},
    tables::{NameMap, NameRecord, Pruning, Step, contents::frontend_key},
};

/// Something wanted, and how far the agent gets.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) desired: DesiredState,
    pub(super) pruning: Pruning,
    /// After how many of the steps planned it stops.
    pub(super) stop: Option<Index>,
    /// Whether another agent takes over then.
    pub(super) restart: bool,
}

const VIPS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "fd00::1"];

/// Every frontend there can be.
pub(super) fn frontends() -> Vec<FrontendId> {
    let mut ids = Vec::new();
    for ip in VIPS {
        for port in [53, 80] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                ids.push(FrontendId { ip: ip.parse().expect("an address"), port, protocol });
            }
        }
    }
    ids
}

/// Holds all that can be wanted.
pub(super) fn capacity() -> Capacity {
    Capacity { vips: 12, frontends: 12, endpoints: 216, clusters: 2, imports: 12 }
}

/// Holds each of these, and no more.
pub(super) fn tight(desired: &[DesiredState]) -> Capacity {
    let max = |of: fn(&DesiredState) -> usize| {
        u32::try_from(desired.iter().map(of).max().unwrap_or(0)).expect("few")
    };
    let clusters = |desired: &DesiredState| {
        let backends = desired.frontends.values().flat_map(|frontend| &frontend.backends);
        backends.map(|backend| &*backend.cluster).collect::<BTreeSet<_>>().len()
    };
    let frontends = max(|desired| desired.frontends.len());
    Capacity {
        vips: max(|desired| desired.vips.len()),
        frontends,
        endpoints: max(|desired| desired.frontends.values().map(Frontend::slot_count).sum()),
        clusters: max(clusters),
        imports: frontends,
    }
}

/// The same sets of backends, each at the next frontend: as many in all, but for families.
pub(super) fn rotated(desired: &DesiredState) -> DesiredState {
    let mut rotated = desired.clone();
    for is_v4 in [true, false] {
        let of_family = |(id, _): &(&FrontendId, &mut Frontend)| id.ip.is_ipv4() == is_v4;
        let sets = rotated.frontends.iter_mut().filter(of_family);
        let mut sets: Vec<_> = sets.map(|(_, f)| (&mut f.backends, &mut f.slots)).collect();
        for n in 1..sets.len() {
            let (former, later) = sets.split_at_mut(n);
            std::mem::swap(&mut *former[n - 1].0, &mut *later[0].0);
            std::mem::swap(&mut *former[n - 1].1, &mut *later[0].1);
        }
    }
    rotated
}

/// Any write to maps of that capacity, right or wrong.
pub(super) fn harm() -> impl Strategy<Value = Step> {
    prop_oneof![2 => likely_harm(), 1 => junk()]
}

/// Entries that say anything at all.
fn junk() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => anything().prop_map(Step::InsertVip),
        1 => (anything(), any::<u32>()).prop_map(|(key, index)| Step::InsertFrontend { key, index }),
        1 => (0..capacity().state_entries(), anything::<FrontendState>())
            .prop_map(|(index, state)| Step::WriteState { index, state: state.into() }),
        1 => (0..capacity().backend_entries(), anything())
            .prop_map(|(id, backend)| Step::WriteBackend { id, backend }),
        1 => (0..capacity().slot_entries(), any::<u32>())
            .prop_map(|(block, id)| Step::WriteSlots { block, ids: vec![id] }),
        2 => prop::sample::select(&NameMap::ALL[..]).prop_flat_map(|map| {
            (0..map.entries(capacity()), collection::vec(any::<u8>(), map.value_size())).prop_map(
                move |(id, bytes)| {
                    let mut record = NameRecord::zeroed();
                    bytemuck::bytes_of_mut(&mut record)[..bytes.len()].copy_from_slice(&bytes);
                    Step::WriteName { map, id, record: record.into() }
                },
            )
        }),
    ]
}

/// A value of whatever bytes.
fn anything<T: AnyBitPattern + Debug>() -> impl Strategy<Value = T> {
    collection::vec(any::<u8>(), size_of::<T>())
        .prop_map(|bytes| bytemuck::pod_read_unaligned(&bytes))
}

/// Writes to places that are in use, of values that are.
fn likely_harm() -> impl Strategy<Value = Step> {
    let index = || 0..capacity().state_entries();
    let id = || 0..capacity().backend_entries();
    let key = prop::sample::select(frontends()).prop_map(|id| frontend_key(&id));
    let extent = (0..80_u32, 0..9_u32).prop_map(|(block, count)| Extent { block, count });
    prop_oneof![
        (key.clone(), index()).prop_map(|(key, index)| Step::InsertFrontend { key, index }),
        key.clone().prop_map(Step::DeleteFrontend),
        key.clone().prop_map(|key| Step::DeleteVip(key.vip)),
        id().prop_map(|id| Step::RetireBackend { id }),
        id().prop_map(|id| Step::KeepBackend { id }),
        (0..80_u32, id()).prop_map(|(block, id)| Step::WriteSlots { block, ids: vec![id] }),
        (index(), extent.clone()).prop_map(|(index, extent)| Step::Flip { index, extent }),
        (index(), 0..99_u32, 0..4_u32, 0..99_u32).prop_map(
            |(index, service, flags, affinity_seconds)| Step::UpdateAttributes {
                index,
                service,
                flags,
                affinity_seconds,
            },
        ),
        (index(), key, extent, 0..99_u32).prop_map(|(index, key, extent, service)| {
            let state = FrontendState { key, extent, service, ..FrontendState::zeroed() };
            Step::WriteState { index, state: state.into() }
        }),
        (id(), 0..4_u8, index(), 0..9_u32, any::<u32>()).prop_map(
            |(id, state, frontend, cluster, generation)| {
                let backend = mcs_common::BackendRecord {
                    state,
                    frontend,
                    cluster,
                    generation,
                    ..mcs_common::BackendRecord::zeroed()
                };
                Step::WriteBackend { id, backend }
            },
        ),
    ]
}

pub(super) fn events(event: impl Strategy<Value = Event>) -> impl Strategy<Value = Vec<Event>> {
    collection::vec(event, 1..6)
}

/// An agent that does all it plans.
pub(super) fn steady() -> impl Strategy<Value = Event> {
    (desired(), pruning()).prop_map(|(desired, pruning)| Event {
        desired,
        pruning,
        stop: None,
        restart: false,
    })
}

/// An agent that stops anywhere, and may then be replaced.
pub(super) fn interrupted() -> impl Strategy<Value = Event> {
    (desired(), pruning(), option::of(any::<Index>()), any::<bool>())
        .prop_map(|(desired, pruning, stop, restart)| Event { desired, pruning, stop, restart })
}

fn pruning() -> impl Strategy<Value = Pruning> {
    any::<bool>().prop_map(Pruning::once)
}

pub(super) fn desired() -> impl Strategy<Value = DesiredState> {
    let frontends = collection::btree_map(0..frontends().len(), frontend(), 0..=6);
    let more_vips = collection::btree_set(0..VIPS.len(), 0..=1);
    (frontends, more_vips, any::<bool>()).prop_map(|(chosen, more_vips, is_late)| {
        let all = frontends_by_index(chosen);
        let more = more_vips.into_iter().map(|vip| VIPS[vip].parse().expect("an address"));
        let vips: BTreeSet<IpAddr> = all.keys().map(|id| id.ip).chain(more).collect();
        let is_deserted =
            |(id, one): (&FrontendId, &Frontend)| (is_late && !one.serves()).then_some(*id);
        let deserted = Arc::new(all.iter().filter_map(is_deserted).collect());
        DesiredState { vips, frontends: all, deserted, ..DesiredState::default() }
    })
}

fn frontends_by_index(chosen: BTreeMap<usize, Frontend>) -> BTreeMap<FrontendId, Frontend> {
    let ids = frontends();
    let of_family = |id: &FrontendId, mut frontend: Frontend| {
        if id.protocol == Protocol::Tcp {
            frontend.also_serving.clear();
        }
        for backend in frontend.backends.iter_mut().chain(&mut frontend.also_serving) {
            if let (true, IpAddr::V4(v4)) = (id.ip.is_ipv6(), backend.address.ip()) {
                backend.address.set_ip(v4.to_ipv6_compatible().into());
            }
        }
        frontend
    };
    chosen.into_iter().map(|(n, frontend)| (ids[n], of_family(&ids[n], frontend))).collect()
}

fn frontend() -> impl Strategy<Value = Frontend> {
    let import = prop::sample::select(vec!["blog", "shop", "web"]);
    let affinity = prop::sample::select(vec![None, Some(60), Some(10_800)]);
    let cluster = prop::sample::select(vec!["", "east", "west"]);
    let is_selected = prop::bool::weighted(0.7);
    let endpoints = collection::btree_map(1..=6_u8, (cluster, is_selected), 0..=6);
    let slots = option::of(collection::vec(1..=3_u32, 6));
    (import, affinity, endpoints, slots).prop_map(|(import, affinity_seconds, endpoints, slots)| {
        let (backends, also_serving): (Vec<_>, Vec<_>) =
            endpoints.into_iter().partition(|(_, (_, is_selected))| *is_selected);
        let backend = |(n, (cluster, _)): (u8, (&str, bool))| Backend {
            address: SocketAddr::from(([10, 1, 0, n], 8080)),
            cluster: cluster.into(),
        };
        Frontend {
            affinity_seconds,
            slots: slots.map_or(Slots::ONE_EACH, |counts| {
                Slots::new(counts.into_iter().take(backends.len()))
            }),
            also_serving: also_serving.into_iter().map(backend).collect(),
            ..Frontend::plain(
                ObjectKey::new("demo", import),
                backends.into_iter().map(backend).collect(),
            )
        }
    })
}
