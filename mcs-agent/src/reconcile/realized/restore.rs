use std::collections::BTreeSet;

use mcs_common::{BackendState, FrontendKey, select::Tables};

use super::Realized;
use crate::{
    model::Capacity,
    reconcile::{Dump, convert::key_text, extents::Extents, ledger::Ledger},
};

/// A frontend that was found in the maps in a state that no agent leaves. The next plan withdraws
/// it, and sets it up anew if it is wanted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("frontend {} in the maps is damaged and is set up anew: {damage}", key_text(key))]
pub struct Finding {
    /// Which.
    pub key: FrontendKey,
    /// What is wrong with it.
    pub damage: Damage,
}

/// What can be wrong with a frontend as found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// Its index is 0 or past the end.
    #[error("index {0} is out of range")]
    Index(u32),
    /// The state at its index is another frontend's, or none.
    #[error("state {0} is not its own")]
    Echo(u32),
    /// Its service's index is past the end.
    #[error("service {0} is out of range")]
    Service(u32),
    /// Its extent is not within the map.
    #[error("{count} slots from {block} are out of range")]
    Extent {
        /// The first.
        block: u32,
        /// How many.
        count: u32,
    },
    /// A slot names a backend out of range, not active, of another frontend or of a cluster out of
    /// range.
    #[error("its slot {slot} names backend {id}, which is not an active one of its own")]
    Backend {
        /// Which slot.
        slot: u32,
        /// What it holds.
        id: u32,
    },
}

impl Realized {
    /// Takes over maps as an agent left them that may have died at any instant.
    ///
    /// Frontends that are whole go on as they are. All that nothing refers to is in limbo: a reader
    /// may hold it.
    pub fn restore(dump: Dump, capacity: Capacity) -> (Self, Vec<Finding>) {
        let mut realized = Self::new(capacity, dump, Ledger::new(capacity, Extents::in_limbo));
        let mut findings = Vec::new();
        let mut whole = Vec::new();
        for (&key, &index) in &realized.tables.frontends {
            match inspect(&realized.tables, capacity, &key, index) {
                Ok(()) => whole.push(index),
                Err(damage) => findings.push(Finding { key, damage }),
            }
        }
        realized.damaged = findings.iter().map(|finding| finding.key).collect();
        for index in whole {
            realized.adopt(index);
        }
        realized.stale = left_active(&realized);
        (realized, findings)
    }
}

/// Whether a reader of this frontend comes to backends of its own, and of no other.
///
/// That no two frontends share an index or a slot follows: a state names one key, a backend one
/// index.
fn inspect(dump: &Dump, capacity: Capacity, key: &FrontendKey, index: u32) -> Result<(), Damage> {
    if index == 0 || index >= capacity.state_entries() {
        return Err(Damage::Index(index));
    }
    let state = dump.state(index).filter(|state| state.key == *key).ok_or(Damage::Echo(index))?;
    if state.service >= capacity.service_entries() {
        return Err(Damage::Service(state.service));
    }
    let (block, count) = (state.extent.block, state.extent.count);
    if block.checked_add(count).is_none_or(|end| end > capacity.slot_entries()) {
        return Err(Damage::Extent { block, count });
    }
    for slot in state.extent.range() {
        let id = dump.slot(slot).unwrap_or_default();
        let own = (1..capacity.backend_entries()).contains(&id)
            && dump.backend(id).is_some_and(|backend| {
                backend.state == BackendState::ACTIVE
                    && backend.frontend == index
                    && backend.cluster < capacity.cluster_entries()
            });
        if !own {
            return Err(Damage::Backend { slot, id });
        }
    }
    Ok(())
}

/// Backends that no frontend refers to, but that a remembered choice would still be sent to.
fn left_active(realized: &Realized) -> BTreeSet<u32> {
    (1..realized.capacity.backend_entries())
        .zip(realized.tables.backends.iter().skip(1))
        .filter(|(id, backend)| {
            backend.state == BackendState::ACTIVE && !realized.ledger.backends.is_taken(*id)
        })
        .map(|(id, _)| id)
        .collect()
}
