//! From an address and port to a backend: the one reader of the config maps, used by every program
//! and, on a model of the maps, by the tests of the writer.

use crate::{
    Address, BackendRecord, BackendRef, Connection, Extent, FrontendKey, FrontendState, Peer,
};

/// The arrays among the config maps, as a reader sees them. Values are copies, read volatile: user
/// space writes them through a mapping at any time. [`FrontendState::extent`] is read as one word.
pub trait Arrays {
    /// `states[index]`.
    fn state(&self, index: u32) -> Option<FrontendState>;
    /// `slots[index]`.
    fn slot(&self, index: u32) -> Option<u32>;
    /// `backends[id]`.
    fn backend(&self, id: u32) -> Option<BackendRecord>;
}

/// The config maps as a reader sees them.
pub trait Tables: Arrays {
    /// Whether the address is a VIP.
    fn is_vip(&self, address: &Address) -> bool;
    /// `frontends[key]`.
    fn frontend(&self, key: &FrontendKey) -> Option<u32>;
}

/// A frontend as found.
#[derive(Clone, Copy, Debug)]
pub struct FrontendMatch {
    /// Its index in `states`.
    pub index: u32,
    /// What stood there.
    pub state: FrontendState,
}

/// What a destination is.
#[derive(Clone, Copy, Debug)]
pub enum Lookup {
    /// No VIP: not ours.
    Miss,
    /// A VIP, but none of its ports.
    UnknownPort,
    /// The maps contradict each other, twice in a row.
    Inconsistent,
    /// A frontend.
    Found(FrontendMatch),
}

/// Looks a destination up.
///
/// An element of `frontends` that is deleted while we hold it may be reused for another key at
/// once, so the echo in `states` decides, and one repetition tells a change from a fault.
#[inline(always)]
pub fn lookup<T: Tables>(tables: &T, key: &FrontendKey) -> Lookup {
    if !tables.is_vip(&key.vip) {
        return Lookup::Miss;
    }
    lookup_port(tables, key)
}

/// As [`lookup`], of an address that is known to be a VIP.
#[inline(always)]
pub fn lookup_port<T: Tables>(tables: &T, key: &FrontendKey) -> Lookup {
    for _ in 0..2 {
        let Some(index) = tables.frontend(key) else { return Lookup::UnknownPort };
        if let Some(state) = tables.state(index)
            && state.key == *key
        {
            return Lookup::Found(FrontendMatch { index, state });
        }
    }
    Lookup::Inconsistent
}

/// A backend chosen.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// What to remember of it.
    pub chosen: BackendRef,
    /// Where it is.
    pub backend: BackendRecord,
}

impl Choice {
    /// The connection that a client of `vip` has with this choice.
    #[inline(always)]
    #[must_use]
    pub const fn connection(&self, vip: Peer) -> Connection {
        let backend = Peer::new(self.backend.addr, self.backend.port);
        Connection { vip, backend, chosen: self.chosen }
    }
}

/// Picks a backend of the extent, uniformly for a uniform `random`. `None` if there is none.
///
/// A retired backend is a valid answer: the extent was read before the set changed.
#[inline(always)]
pub fn pick<T: Arrays>(tables: &T, extent: Extent, random: u32) -> Option<Choice> {
    if extent.count == 0 {
        return None;
    }
    let nth = (u64::from(random) * u64::from(extent.count)) >> 32;
    let id = tables.slot(extent.block.wrapping_add(nth as u32))?;
    let backend = tables.backend(id)?;
    Some(Choice { chosen: BackendRef { id, generation: backend.generation }, backend })
}

/// The backend remembered, if it is still a usable one of the frontend.
#[inline(always)]
pub fn recall<T: Arrays>(tables: &T, frontend: u32, remembered: BackendRef) -> Option<Choice> {
    let backend = tables.backend(remembered.id)?;
    backend.still_serves(frontend, remembered).then_some(Choice { chosen: remembered, backend })
}
