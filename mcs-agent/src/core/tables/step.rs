//! The writes that a plan is made of.

use std::fmt;

use mcs_common::{
    Address, AddressKinds, BackendRecord, Extent, FrontendKey, FrontendState, VipMode, maps,
};

use super::{NameMap, NameRecord};

/// One write to the maps, as plain data.
///
/// Every step is idempotent. A reader may run between any two of them, and the agent may die
/// between any two of them.
///
/// A plan may have millions: the largest of them are boxed.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Deletes from `vips`: the address is no longer ours. An absent entry counts as success.
    DeleteVip(Address),
    /// Deletes from `frontends`. An absent entry counts as success.
    DeleteFrontend(FrontendKey),
    /// Stores a name. A plan writes names that nothing refers to yet.
    WriteName {
        /// The map.
        map: NameMap,
        /// Index into the map.
        id: u32,
        /// The new entry.
        record: Box<NameRecord>,
    },
    /// Stores a backend that no slot a reader can reach names. The id's former use may still be
    /// remembered, so the 64-bit word that holds state and generation goes last, in one store with
    /// release order.
    WriteBackend {
        /// Index into `backends`, never 0.
        id: u32,
        /// The new entry.
        backend: BackendRecord,
    },
    /// Stores into slots that no reader can reach.
    WriteSlots {
        /// The first index into `slots`.
        block: u32,
        /// Backend ids, for consecutive slots.
        ids: Vec<u32>,
    },
    /// Stores at an index that no reader can reach.
    WriteState {
        /// Index into `states`, never 0.
        index: u32,
        /// The new entry. Its extent is complete.
        state: Box<FrontendState>,
    },
    /// Stores the attributes of a live frontend in place, one by one; a reader may see some new attributes
    /// and some old ones.
    UpdateAttributes {
        /// Index into `states`.
        index: u32,
        /// [`FrontendState::service`].
        service: u32,
        /// [`FrontendState::flags`].
        flags: u32,
        /// [`FrontendState::affinity_seconds`].
        affinity_seconds: u32,
    },
    /// The commit point of a change of a live frontend's backends: one 64-bit store with release
    /// order to [`FrontendState::extent`].
    Flip {
        /// Index into `states`.
        index: u32,
        /// Complete.
        extent: Extent,
    },
    /// Inserts into `frontends`, never over an entry (`BPF_NOEXIST`): updating a key makes
    /// concurrent look-ups miss it. The same entry counts as success, one with another
    /// index is an error.
    InsertFrontend {
        /// What a client connects to.
        key: FrontendKey,
        /// Index into `states`, complete.
        index: u32,
    },
    /// Inserts into `vips` as served, never over an entry (`BPF_NOEXIST`). The same entry counts as success.
    InsertVip(Address),
    /// Stores the mode of an address in `vips`, or inserts it. A concurrent look-up can miss the entry: for
    /// one packet or connection the address is no VIP.
    SetVipMode {
        /// The address.
        vip: Address,
        /// A value of [`VipMode`].
        mode: u32,
    },
    /// Stores `RETIRED` to [`BackendRecord::state`]. The other fields stay: readers that hold the former block still use
    /// them.
    RetireBackend {
        /// Index into `backends`.
        id: u32,
    },
    /// Stores `KEPT` to [`BackendRecord::state`]: sockets and flows of UDP that have the backend stay with it.
    KeepBackend {
        /// Index into `backends`.
        id: u32,
    },
    /// Stores `ACTIVE` to the state of a kept backend, before slots name it again. Its generation stays.
    ResumeBackend {
        /// Index into `backends`.
        id: u32,
    },
    /// Sets a hint that another process has cleared. (The steps that write a VIP or a backend set their hints.) Hints of
    /// former backends, which sockets and flows may still have, can be lost with it: every address becomes a possible
    /// backend.
    RepairHint {
        /// The address.
        address: Address,
        /// What the address is.
        hint: AddressKinds,
    },
    /// Waits until every program that runs now has ended (an RCU grace period). Entries released
    /// before may be overwritten after.
    WaitForReaders,
}

impl Step {
    /// The map written, by its name in [`mcs_common::maps`]; `None` for [`Step::WaitForReaders`].
    pub const fn map(&self) -> Option<&'static str> {
        match self {
            Self::DeleteVip(_) | Self::InsertVip(_) | Self::SetVipMode { .. } => Some(maps::VIPS),
            Self::DeleteFrontend(_) | Self::InsertFrontend { .. } => Some(maps::FRONTENDS),
            Self::WriteName { map, .. } => Some(map.map()),
            Self::WriteBackend { .. }
            | Self::RetireBackend { .. }
            | Self::KeepBackend { .. }
            | Self::ResumeBackend { .. } => Some(maps::BACKENDS),
            Self::WriteSlots { .. } => Some(maps::SLOTS),
            Self::WriteState { .. } | Self::UpdateAttributes { .. } | Self::Flip { .. } => {
                Some(maps::STATES)
            }
            Self::RepairHint { .. } => Some(maps::HINTS),
            Self::WaitForReaders => None,
        }
    }
}

impl fmt::Display for Step {
    /// What is done to which entry, without the map: `insert 10.0.0.1:80/TCP at index 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteVip(vip) => write!(f, "delete {}", vip.to_ip()),
            Self::DeleteFrontend(key) => write!(f, "delete {}", super::convert::key_text(key)),
            Self::WriteName { id, .. } => write!(f, "write entry {id}"),
            Self::WriteBackend { id, .. } => write!(f, "write backend {id}"),
            Self::WriteSlots { block, ids } => write!(f, "write {} slots from {block}", ids.len()),
            Self::WriteState { index, .. } => write!(f, "write state {index}"),
            Self::UpdateAttributes { index, .. } => write!(f, "update attributes of state {index}"),
            Self::Flip { index, extent } => {
                write!(f, "flip state {index} to {} slots from {}", extent.count, extent.block)
            }
            Self::InsertFrontend { key, index } => {
                write!(f, "insert {} at index {index}", super::convert::key_text(key))
            }
            Self::InsertVip(vip) => write!(f, "insert {}", vip.to_ip()),
            Self::SetVipMode { vip, mode } => match *mode {
                VipMode::SERVED => write!(f, "serve {}", vip.to_ip()),
                VipMode::GONE => write!(f, "refuse {}", vip.to_ip()),
                _ => write!(f, "hand back {}", vip.to_ip()),
            },
            Self::RetireBackend { id } => write!(f, "retire backend {id}"),
            Self::KeepBackend { id } => write!(f, "keep backend {id}"),
            Self::ResumeBackend { id } => write!(f, "resume backend {id}"),
            Self::RepairHint { address, hint } => {
                let what = if hint.may_be_vip() { "VIP" } else { "backend" };
                write!(f, "hint that {} is a {what}", address.to_ip())
            }
            Self::WaitForReaders => f.write_str("wait for readers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn what_becomes_of_a_vip_is_said() {
        let vip = IpAddr::from([10, 0, 0, 1]).into();
        let said = |mode| Step::SetVipMode { vip, mode }.to_string();
        assert_eq!(said(VipMode::SERVED), "serve 10.0.0.1");
        assert_eq!(said(VipMode::GONE), "refuse 10.0.0.1");
        assert_eq!(said(VipMode::HANDED_BACK), "hand back 10.0.0.1");
    }
}
