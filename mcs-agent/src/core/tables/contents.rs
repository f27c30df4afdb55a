//! What the maps contain, and how the desired state is written in their records.

use std::{mem::offset_of, net::SocketAddr};

use bytemuck::{Pod, Zeroable};
use mcs_common::{
    Address, AddressKinds, BackendRecord, BackendRef, BackendState, ClusterRecord,
    FRONTEND_AFFINITY_CLIENT_IP, FrontendKey, FrontendState, ServiceRecord, VipMode, maps,
    select::{self, Arrays, Tables},
    text,
};

use super::{
    Step,
    shared::{Pages, SharedMap},
};
use crate::core::model::{Capacity, Departure, Frontend, FrontendId, ObjectKey, Protocol};

/// Everything the config maps hold.
///
/// An array may end after its last entry in use: what is past its end is zero. Clones share their
/// pages until one of them is written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MapContents {
    /// `vips`: the mode of each address.
    pub vips: SharedMap<Address, u32>,
    /// `frontends`.
    pub frontends: SharedMap<FrontendKey, u32>,
    /// `states`, by index.
    pub states: Pages<FrontendState>,
    /// `slots`, by index.
    pub slots: Pages<u32>,
    /// `backends`, by id.
    pub backends: Pages<BackendRecord>,
    /// The names, by index.
    pub names: OfNameMaps<Pages<NameRecord>>,
}

impl MapContents {
    /// Whether maps of this capacity have all the places that are in use here.
    pub fn fits(&self, capacity: Capacity) -> bool {
        let names = NameMap::ALL.map(|map| (self.names[map as usize].len(), map.entries(capacity)));
        self.vips.len() <= capacity.vips as usize
            && self.frontends.len() <= capacity.frontends as usize
            && [
                (self.states.len(), capacity.state_entries()),
                (self.slots.len(), capacity.slot_entries()),
                (self.backends.len(), capacity.backend_entries()),
            ]
            .into_iter()
            .chain(names)
            .all(|(used, entries)| used <= entries as usize)
    }

    /// The writes that give empty maps the same entries at the same places, without the entries
    /// that are out of the capacity. [`super::Realized::restore`] finds the frontends that this damages.
    pub fn copy(&self, capacity: Capacity) -> impl Iterator<Item = Step> {
        let names = NameMap::ALL.into_iter().flat_map(move |map| {
            used(&self.names[map as usize], map.entries(capacity))
                .map(move |(id, record)| Step::WriteName { map, id, record: record.into() })
        });
        let backends = used(&self.backends, capacity.backend_entries())
            .map(|(id, backend)| Step::WriteBackend { id, backend });
        let ids = used(&self.slots, capacity.slot_entries()).map(|(_, id)| id).collect();
        let slots = Step::WriteSlots { block: 0, ids };
        let states = used(&self.states, capacity.state_entries())
            .map(|(index, state)| Step::WriteState { index, state: state.into() });
        let frontends = self
            .frontends
            .iter()
            .filter(move |(_, index)| **index < capacity.state_entries())
            .take(capacity.frontends as usize)
            .map(|(key, index)| Step::InsertFrontend { key: *key, index: *index });
        let served = self.vips_of_mode(|mode| mode == VipMode::SERVED);
        let departed = self.vips_of_mode(|mode| mode != VipMode::SERVED);
        let vips = served.map(|(vip, _)| Step::InsertVip(vip));
        let vips = vips.chain(departed.map(|(vip, mode)| Step::SetVipMode { vip, mode }));
        let arrays = names.chain(backends).chain([slots]).chain(states);
        arrays.chain(frontends).chain(vips.take(capacity.vips as usize))
    }

    /// The VIPs whose mode is one of these.
    pub fn vips_of_mode(
        &self,
        is_one: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = (Address, u32)> {
        let vips = self.vips.iter().map(|(vip, mode)| (*vip, *mode));
        vips.filter(move |(_, mode)| is_one(*mode))
    }

    /// An entry of a map of names. Entry 0, and any that was never written, is no name.
    pub fn name(&self, map: NameMap, id: u32) -> NameRecord {
        self.names[map as usize].get(id as usize).copied().unwrap_or(Zeroable::zeroed())
    }

    /// The backend that a UDP client remembers, if it still serves the frontend.
    pub fn remembered(&self, frontend: u32, chosen: BackendRef) -> Option<BackendRecord> {
        select::recall(self, frontend, chosen).map(|choice| choice.backend)
    }

    /// Does to this copy what the step does to the maps.
    pub fn write(&mut self, step: &Step) {
        match *step {
            Step::DeleteVip(vip) => {
                self.vips.remove(&vip);
            }
            Step::DeleteFrontend(key) => {
                self.frontends.remove(&key);
            }
            Step::WriteName { map, id, ref record } => {
                *self.names[map as usize].entry(id as usize) = **record;
            }
            Step::WriteBackend { id, backend } => *self.backends.entry(id as usize) = backend,
            Step::WriteSlots { block, ref ids } => {
                for (slot, &id) in (block..).zip(ids) {
                    *self.slots.entry(slot as usize) = id;
                }
            }
            Step::WriteState { index, ref state } => *self.states.entry(index as usize) = **state,
            Step::UpdateAttributes { index, service, flags, affinity_seconds } => {
                let state = self.states.entry(index as usize);
                *state = FrontendState { service, flags, affinity_seconds, ..*state };
            }
            Step::Flip { index, extent } => self.states.entry(index as usize).extent = extent,
            Step::InsertFrontend { key, index } => {
                self.frontends.insert(key, index);
            }
            Step::InsertVip(vip) => {
                self.vips.insert(vip, VipMode::SERVED);
            }
            Step::SetVipMode { vip, mode } => {
                self.vips.insert(vip, mode);
            }
            Step::RetireBackend { id } => self.set_state(id, BackendState::RETIRED),
            Step::KeepBackend { id } => self.set_state(id, BackendState::KEPT),
            Step::ResumeBackend { id } => self.set_state(id, BackendState::ACTIVE),
            Step::RepairHint { .. } | Step::WaitForReaders => {}
        }
    }

    fn set_state(&mut self, id: u32, state: u8) {
        self.backends.entry(id as usize).state = state;
    }
}

/// The entries of an array within a capacity.
fn used<T: Copy + Zeroable>(array: &Pages<T>, entries: u32) -> impl Iterator<Item = (u32, T)> {
    (0..entries).zip(array.iter().copied())
}

impl Tables for MapContents {
    /// A copy has no hints.
    fn kinds_of(&self, _: &Address) -> AddressKinds {
        AddressKinds::ANY
    }

    fn vip(&self, address: &Address) -> Option<u32> {
        self.vips.get(address).copied()
    }

    fn are_released(&self) -> bool {
        false
    }

    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        self.frontends.get(key).copied()
    }
}

impl Arrays for MapContents {
    fn state(&self, index: u32) -> Option<FrontendState> {
        self.states.get(index as usize).copied()
    }

    fn slot(&self, index: u32) -> Option<u32> {
        self.slots.get(index as usize).copied()
    }

    fn backend(&self, id: u32) -> Option<BackendRecord> {
        self.backends.get(id as usize).copied()
    }
}

/// The key of a frontend.
pub fn frontend_key(id: &FrontendId) -> FrontendKey {
    FrontendKey::new(id.ip.into(), id.port, id.protocol.number())
}

/// The frontend of a key; `None` for a protocol that is not ours.
pub fn frontend_id(key: &FrontendKey) -> Option<FrontendId> {
    let protocol = Protocol::from_number(key.protocol)?;
    Some(FrontendId { ip: key.vip.to_ip(), port: key.port, protocol })
}

/// A key for people: `10.0.0.1:80/TCP`, with a number for a protocol that is not ours.
pub fn key_text(key: &FrontendKey) -> String {
    frontend_id(key).map_or_else(
        || format!("{}/{}", SocketAddr::new(key.vip.to_ip(), key.port), key.protocol),
        |id| id.to_string(),
    )
}

/// The mode of a VIP that has departed.
pub const fn mode(departure: Departure) -> u32 {
    match departure {
        Departure::HandedBack => VipMode::HANDED_BACK,
        Departure::Gone => VipMode::GONE,
    }
}

/// What a mode stands for; `None` for a VIP that is served.
pub const fn departure(mode: u32) -> Option<Departure> {
    match mode {
        VipMode::SERVED => None,
        VipMode::GONE => Some(Departure::Gone),
        _ => Some(Departure::HandedBack),
    }
}

/// `FrontendState::flags` and `FrontendState::affinity_seconds`.
pub fn attributes(frontend: &Frontend) -> (u32, u32) {
    frontend.affinity_seconds.map_or((0, 0), |seconds| (FRONTEND_AFFINITY_CLIENT_IP, seconds))
}

/// Where a backend is.
pub fn backend_address(backend: &BackendRecord) -> SocketAddr {
    SocketAddr::new(backend.addr.to_ip(), backend.port)
}

/// The text up to the first zero; what is no UTF-8 is replaced.
pub(crate) fn string(text: &[i8]) -> String {
    let bytes: Vec<u8> =
        text.iter().take_while(|&&byte| byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A config map whose entries are names. Entry 0 is no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameMap {
    /// `services`: the imports of frontends.
    Services,
    /// `clusters`: the source clusters of backends.
    Clusters,
}

/// An entry of any of these maps: the two parts of a name, of at most 63 bytes each, with zeros after each. An entry of
/// `clusters` ends after the first part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct NameRecord([[i8; 64]; 2]);

const _: () = assert!(size_of::<ServiceRecord>() == size_of::<NameRecord>());
const _: () = assert!(offset_of!(ServiceRecord, name) == size_of::<[i8; 64]>());
const _: () = assert!(size_of::<ClusterRecord>() == size_of::<[i8; 64]>());

/// What each of these maps has, in the order of [`NameMap::ALL`].
pub type OfNameMaps<T> = [T; NameMap::ALL.len()];

impl NameMap {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Services, Self::Clusters];

    /// The name of the map.
    pub const fn map(self) -> &'static str {
        match self {
            Self::Services => maps::SERVICES,
            Self::Clusters => maps::CLUSTERS,
        }
    }

    /// Entries of the map.
    pub const fn entries(self, capacity: Capacity) -> u32 {
        match self {
            Self::Services => capacity.service_entries(),
            Self::Clusters => capacity.cluster_entries(),
        }
    }

    /// Bytes of an entry: as many of the first ones of [`NameRecord`].
    pub const fn value_size(self) -> usize {
        match self {
            Self::Services => size_of::<ServiceRecord>(),
            Self::Clusters => size_of::<ClusterRecord>(),
        }
    }
}

impl NameRecord {
    /// The record of a ServiceImport. Names are at most 63 bytes, by the rules.
    pub fn of_import(import: &ObjectKey) -> Self {
        Self([text(&import.namespace), text(&import.name)])
    }

    /// The record of a source cluster.
    pub fn of_cluster(name: &str) -> Self {
        Self([text(name), Zeroable::zeroed()])
    }

    /// The ServiceImport that this is the record of.
    pub fn import(&self) -> ObjectKey {
        let [namespace, name] = &self.0;
        ObjectKey::new(string(namespace), string(name))
    }

    /// Whether it is the record of a ServiceImport.
    pub const fn is_import(&self) -> bool {
        self.0[1][0] != 0
    }

    /// The source cluster that this is the record of.
    pub fn cluster(&self) -> String {
        string(&self.0[0])
    }

    /// Whether it is the record of this source cluster.
    pub fn is_cluster(&self, name: &str) -> bool {
        self.0[0] == text(name)
    }

    /// The parts, each without the zeros at its end: few names need the room that a record has.
    ///
    /// The length of each part comes before it: what others write to the maps can have zeros anywhere.
    pub(super) fn short(&self) -> Box<[u8]> {
        let mut name = Vec::new();
        for part in self.0.iter().map(|part| without_zeros(part)) {
            name.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            name.extend_from_slice(part);
        }
        name.into()
    }
}

fn without_zeros(part: &[i8]) -> &[u8] {
    let zeros = part.iter().rev().take_while(|byte| **byte == 0).count();
    bytemuck::cast_slice(&part[..part.len() - zeros])
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::core::tables::fixtures::{address, frontend, id};

    type Write = fn(&mut MapContents);

    fn one_more_name(all: &mut MapContents, map: NameMap) {
        let names = &mut all.names[map as usize];
        names.entry(names.len());
    }

    #[test]
    fn each_map_has_as_many_places_as_its_capacity_says() {
        let capacity = Capacity { vips: 3, frontends: 2, endpoints: 4, clusters: 1, imports: 2 };
        let one_more: [(Write, u32); 7] = [
            (
                |all| {
                    let vip = IpAddr::from([10, 0, 0, u8::try_from(all.vips.len()).unwrap()]);
                    all.vips.insert(vip.into(), VipMode::SERVED);
                },
                3,
            ),
            (
                |all| {
                    let port = u16::try_from(all.frontends.len()).unwrap();
                    all.frontends.insert(frontend_key(&id("10.0.0.1", port)), 1);
                },
                2,
            ),
            (|all| _ = all.states.entry(all.states.len()), capacity.state_entries()),
            (|all| _ = all.slots.entry(all.slots.len()), capacity.slot_entries()),
            (|all| _ = all.backends.entry(all.backends.len()), capacity.backend_entries()),
            (|all| one_more_name(all, NameMap::Services), capacity.service_entries()),
            (|all| one_more_name(all, NameMap::Clusters), capacity.cluster_entries()),
        ];
        for (nth, (write, places)) in one_more.into_iter().enumerate() {
            let mut all = MapContents::default();
            for _ in 0..places {
                assert!(all.fits(capacity), "{nth}");
                write(&mut all);
            }
            assert!(all.fits(capacity), "{nth}");
            write(&mut all);
            assert!(!all.fits(capacity), "{nth}");
        }
    }

    #[test]
    fn a_frontend_comes_back_from_its_key() {
        for (ip, text) in [("10.0.0.1", "10.0.0.1:80/TCP"), ("fd00::1", "[fd00::1]:80/TCP")] {
            let key = frontend_key(&id(ip, 80));
            assert_eq!(frontend_id(&key), Some(id(ip, 80)));
            assert_eq!(key_text(&key), text);
        }
        let sctp = FrontendKey::new(address("10.0.0.1").into(), 80, 132);
        assert_eq!(frontend_id(&sctp), None);
        assert_eq!(key_text(&sctp), "10.0.0.1:80/132");
    }

    #[test]
    fn affinity_is_a_flag_and_seconds() {
        let mut frontend = frontend("web", &[]);
        assert_eq!(attributes(&frontend), (0, 0));
        frontend.affinity_seconds = Some(60);
        assert_eq!(attributes(&frontend), (FRONTEND_AFFINITY_CLIENT_IP, 60));
    }

    #[test]
    fn every_map_is_at_its_place() {
        for (place, map) in NameMap::ALL.into_iter().enumerate() {
            assert_eq!(map as usize, place);
            let described = maps::of(maps::Place::Config).find(|one| one.name == map.map());
            assert_eq!(described.map(|one| one.value), Some(map.value_size()));
        }
    }

    #[test]
    fn names_come_back_from_their_records() {
        let longest = "x".repeat(63);
        for name in ["web", longest.as_str(), ""] {
            let import = ObjectKey::new("demo", name);
            assert_eq!(NameRecord::of_import(&import).import(), import);
            assert_eq!(NameRecord::of_cluster(name).cluster(), name);
            assert!(NameRecord::of_cluster(name).is_cluster(name));
            assert!(!NameRecord::of_cluster("x").is_cluster(name));
        }
    }

    #[test]
    fn short_names_are_as_different_as_their_records() {
        let records: [[[i8; 2]; 2]; 10] = [
            [[1, 0], [1, 0]],
            [[1, 1], [0, 0]],
            [[1, 0], [0, 0]],
            [[0, 0], [1, 0]],
            [[0, 1], [0, 0]],
            [[0, 0], [0, 1]],
            [[0, 0], [0, 0]],
            [[1, 0], [0, 1]],
            [[1, 0], [1, 1]],
            [[1, 1], [1, 0]],
        ];
        let short: std::collections::BTreeSet<_> = records
            .iter()
            .map(|parts| {
                let mut record = NameRecord::zeroed();
                for (part, [first, second]) in record.0.iter_mut().zip(parts) {
                    part[..2].copy_from_slice(&[*first, *second]);
                }
                record.short()
            })
            .collect();
        assert_eq!(short.len(), records.len(), "{short:?}");
    }
}
