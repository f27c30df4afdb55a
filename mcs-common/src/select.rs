//! Selects a backend for an address and port from the config maps. Every program uses this code. The tests of
//! the writer use it too, on a model of the maps.

use core::hint::cold_path;

use crate::{
    Address, AddressKinds, BackendRecord, BackendRef, BackendState, Connection, Extent,
    FrontendKey, FrontendState, Peer, VipMode,
};

/// Read access to the arrays among the config maps. A value is returned as a copy of volatile reads,
/// since user space writes it through a mapping at any time. [`FrontendState::extent`] is read as one
/// 64-bit word.
pub trait Arrays {
    /// `states[index]`.
    fn state(&self, index: u32) -> Option<FrontendState>;
    /// The slot at `index`: a backend id.
    fn slot(&self, index: u32) -> Option<u32>;
    /// `backends[id]`.
    fn backend(&self, id: u32) -> Option<BackendRecord>;
}

/// Read access to all config maps that a look-up needs.
pub trait Tables: Arrays {
    /// What `hints` says of an address; [`AddressKinds::ANY`] without that map.
    fn kinds_of(&self, address: &Address) -> AddressKinds;
    /// `vips[address]`: a value of [`VipMode`]. `None` if the address is no VIP.
    fn vip(&self, address: &Address) -> Option<u32>;
    /// Whether every VIP counts as handed back, whatever its mode is: no agent has written the maps for too long.
    fn are_released(&self) -> bool;
    /// `frontends[key]`: an index into `states`.
    fn frontend(&self, key: &FrontendKey) -> Option<u32>;
}

/// The frontend that a look-up matched.
#[derive(Clone, Copy, Debug)]
pub struct FrontendMatch {
    /// Its index in `states`.
    pub index: u32,
    /// A copy of its state.
    pub state: FrontendState,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug)]
pub enum Lookup {
    /// The address is no VIP, or was handed back.
    Miss,
    /// The address was the VIP of a deleted import.
    Gone,
    /// The address is a VIP without this port and protocol.
    UnknownPort,
    /// The maps contradicted each other twice in a row.
    Inconsistent,
    /// The destination is this frontend.
    Found(FrontendMatch),
}

/// Looks up the frontend of a destination.
///
/// The kernel may reuse a deleted element of `frontends` for another key at once (kernel/bpf/hashtab.c,
/// preallocated elements). So the copy of the key in `states` decides, and one repetition tells a
/// concurrent change from a fault.
#[inline(always)]
pub fn lookup<T: Tables>(tables: &T, key: &FrontendKey) -> Lookup {
    if tables.kinds_of(&key.vip).may_be_vip() { lookup_filtered(tables, key) } else { Lookup::Miss }
}

/// Looks up the frontend as [`lookup`] does, for an address that may be a VIP.
///
/// A VIP that is not served has no frontends, except while an agent changes its mode. So the port is looked up first, and
/// the mode of the VIP only says why there is no such port.
#[inline(always)]
pub fn lookup_filtered<T: Tables>(tables: &T, key: &FrontendKey) -> Lookup {
    if tables.are_released() {
        cold_path();
        return Lookup::Miss;
    }
    find_port(tables, key, || match tables.vip(&key.vip) {
        Some(VipMode::SERVED) => Lookup::UnknownPort,
        Some(VipMode::GONE) => Lookup::Gone,
        _ => Lookup::Miss,
    })
}

/// Looks up the frontend of a VIP that is known to be served.
#[inline(always)]
pub fn lookup_port<T: Tables>(tables: &T, key: &FrontendKey) -> Lookup {
    find_port(tables, key, || Lookup::UnknownPort)
}

/// Looks up the frontend. Without such a port, `without` decides.
#[inline(always)]
fn find_port<T: Tables>(tables: &T, key: &FrontendKey, without: impl Fn() -> Lookup) -> Lookup {
    for _ in 0..2 {
        let Some(index) = tables.frontend(key) else {
            cold_path();
            return without();
        };
        if let Some(state) = tables.state(index)
            && state.key == *key
        {
            return Lookup::Found(FrontendMatch { index, state });
        }
        cold_path();
    }
    Lookup::Inconsistent
}

/// A selected backend.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Its id and generation, to be remembered.
    pub chosen: BackendRef,
    /// A copy of its record.
    pub backend: BackendRecord,
    /// Whether session affinity remembered it. It is for `trace` alone.
    pub by_affinity: bool,
}

impl Choice {
    /// The connection of a client of `vip` to this backend.
    #[inline(always)]
    #[must_use]
    pub const fn connection(&self, vip: Peer) -> Connection {
        let backend = Peer::new(self.backend.addr, self.backend.port);
        Connection { vip, backend, chosen: self.chosen }
    }
}

/// Picks a backend of the extent, uniformly for a uniform `random`. Returns `None` for an empty extent.
///
/// A retired backend is a valid result: the extent was read before the set changed.
#[inline(always)]
pub fn pick<T: Arrays>(tables: &T, extent: Extent, random: u32) -> Option<Choice> {
    if extent.count == 0 {
        return None;
    }
    let nth = (u64::from(random) * u64::from(extent.count)) >> 32;
    let id = tables.slot(extent.block.wrapping_add(nth as u32))?;
    let backend = tables.backend(id)?;
    let chosen = BackendRef { id, generation: backend.generation };
    Some(Choice { chosen, backend, by_affinity: false })
}

/// The remembered backend, if it is still an active or kept backend of the frontend: for sockets and flows
/// that have it.
#[inline(always)]
pub fn recall<T: Arrays>(tables: &T, frontend: u32, remembered: BackendRef) -> Option<Choice> {
    let backend = tables.backend(remembered.id)?;
    let choice = Choice { chosen: remembered, backend, by_affinity: false };
    backend.still_serves(frontend, remembered).then_some(choice)
}

/// The remembered backend, if it is still an active backend of the frontend: for new connections.
#[inline(always)]
pub fn recall_for_new<T: Arrays>(
    tables: &T,
    frontend: u32,
    remembered: BackendRef,
) -> Option<Choice> {
    recall(tables, frontend, remembered)
        .filter(|choice| choice.backend.state == BackendState::ACTIVE)
}
