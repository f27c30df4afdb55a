//! The steps of a plan, and how the agent carries them out on config maps, in the kernel or in memory.

use std::{
    fmt::{self, Display},
    io,
};

use mcs_common::{
    Address, AddressKinds, BackendRecord, Extent, FrontendKey, FrontendState, VipMode, maps,
    select::Arrays,
};

use super::{MapContents, NameMap, NameRecord, Planned, Realized};

/// The config maps, as their one writer sees them.
pub trait Maps {
    /// How they are read.
    type Reader: MapReader;

    /// Does one step.
    ///
    /// # Errors
    ///
    /// The kernel's answer. What the maps hold after that has to be read.
    fn write(&mut self, step: &Step) -> Result<(), MapError>;

    /// The same maps, to be read.
    fn reader(&self) -> &Self::Reader;
}

/// The config maps as user space reads them. Reads of the hash maps are system calls, which can fail;
/// the arrays are mapped.
pub trait MapReader: Arrays {
    /// Everything the maps hold. Not a snapshot: the agent may write between two reads.
    fn read_all(&self) -> Result<MapContents, MapError>;
    /// The mode at this key of `vips`.
    fn vip_mode(&self, vip: &Address) -> Result<Option<u32>, MapError>;
    /// What `hints` says of an address.
    fn kinds_of(&self, address: &Address) -> AddressKinds;
    /// The index at this key of `frontends`.
    fn index_of(&self, key: &FrontendKey) -> Result<Option<u32>, MapError>;
    /// The keys of `vips`.
    fn vips(&self) -> Result<Vec<Address>, MapError>;
    /// The keys of `frontends`.
    fn frontends(&self) -> Result<Vec<FrontendKey>, MapError>;
    /// An entry of a map of names.
    fn name(&self, map: NameMap, id: u32) -> Option<NameRecord>;
}

/// A read or write of a map failed. Displays without the kernel's answer, which is the source.
#[derive(Debug, thiserror::Error)]
#[error("map {map}: cannot {operation}")]
pub struct MapError {
    /// By its name in [`mcs_common::maps`].
    pub map: &'static str,
    /// What failed: a step, or a read of an entry or of all.
    pub operation: String,
    /// The kernel's answer.
    pub source: io::Error,
}

impl MapError {
    /// The step failed.
    pub fn writing(step: &Step, source: io::Error) -> Self {
        let map = step.map().unwrap_or("of maps");
        Self { map, operation: step.to_string(), source }
    }

    /// The entry, or `all`, could not be read.
    pub fn reading(map: &'static str, entry: impl Display, source: io::Error) -> Self {
        Self { map, operation: format!("read {entry}"), source }
    }
}

/// A write failed, and the plan stopped there. Every frontend has its former or its new backends and
/// attributes; a new plan from the realized state has the remaining steps.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {done} of {planned} writes to the maps; the rest follows")]
pub struct ApplyError {
    /// How many steps succeeded.
    pub done: usize,
    /// How many steps the plan has.
    pub planned: usize,
    /// The write that failed.
    pub source: MapError,
}

/// Does the steps of a plan in order. `realized` becomes the state after the plan. After a write that failed it becomes
/// what the maps hold.
///
/// # Errors
///
/// The first write that fails.
pub fn apply(
    Planned { plan, realized: after }: Planned,
    maps: &mut impl Maps,
    realized: &mut Realized,
) -> Result<(), ApplyError> {
    let planned = plan.steps.len();
    for (done, step) in plan.steps.iter().enumerate() {
        if let Err(source) = maps.write(step) {
            plan.steps[..done].iter().for_each(|step| realized.record(step));
            realized.read_again(maps.reader());
            return Err(ApplyError { done, planned, source });
        }
    }
    *realized = after;
    Ok(())
}

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
            Self::DeleteFrontend(key) => write!(f, "delete {}", super::contents::key_text(key)),
            Self::WriteName { id, .. } => write!(f, "write entry {id}"),
            Self::WriteBackend { id, .. } => write!(f, "write backend {id}"),
            Self::WriteSlots { block, ids } => write!(f, "write {} slots from {block}", ids.len()),
            Self::WriteState { index, .. } => write!(f, "write state {index}"),
            Self::UpdateAttributes { index, .. } => write!(f, "update attributes of state {index}"),
            Self::Flip { index, extent } => {
                write!(f, "flip state {index} to {} slots from {}", extent.count, extent.block)
            }
            Self::InsertFrontend { key, index } => {
                write!(f, "insert {} at index {index}", super::contents::key_text(key))
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
    use crate::core::{
        model::{Capacity, DesiredState},
        tables::{
            Pruning,
            fixtures::{go, web},
            plan,
            testing::{FaultyMaps, MemoryMaps},
        },
    };

    #[test]
    fn every_step_is_written() {
        let capacity = Capacity { vips: 1, frontends: 1, endpoints: 1, clusters: 1, imports: 1 };
        let mut maps = MemoryMaps::new(capacity);
        let mut realized = Realized::empty(capacity);
        let mut go = |desired: &DesiredState| go(desired, &mut maps, &mut realized);
        assert_eq!(
            go(&web("web", &[("10.1.0.1:80", "east")])),
            [
                "services: write entry 1",
                "clusters: write entry 1",
                "backends: write backend 1",
                "slots: write 1 slots from 0",
                "states: write state 1",
                "frontends: insert 10.0.0.1:80/TCP at index 1",
                "vips: insert 10.0.0.1",
            ]
        );
        assert_eq!(
            go(&web("web", &[("10.1.0.2:80", "east")])),
            [
                "backends: write backend 2",
                "slots: write 1 slots from 1",
                "states: flip state 1 to 1 slots from 1",
                "backends: retire backend 1",
            ]
        );
        // Slot 0 still names backend 1.
        assert_eq!(
            go(&web("web", &[("10.1.0.3:80", "east")])),
            [
                "all: wait for readers",
                "backends: write backend 1",
                "states: flip state 1 to 1 slots from 0",
                "backends: retire backend 2",
            ]
        );
        assert_eq!(
            go(&DesiredState::default()),
            [
                "vips: delete 10.0.0.1",
                "frontends: delete 10.0.0.1:80/TCP",
                "backends: retire backend 1",
            ]
        );
        assert_eq!(realized.contents(), maps.contents());
    }

    #[test]
    fn the_first_failure_stops_it() {
        let capacity = Capacity::default();
        let mut maps = FaultyMaps::new(MemoryMaps::new(capacity), 1000, 0);
        let mut realized = Realized::empty(capacity);
        let plan = plan(&web("web", &[]), &realized, Pruning::On);
        let plan = Planned::after(plan.steps, &realized);
        let error = apply(plan, &mut maps, &mut realized).expect_err("every insertion fails");
        assert_eq!(error.to_string(), "stopped after 2 of 4 writes to the maps; the rest follows");
        assert_eq!(realized.contents(), maps.maps.contents());
    }

    #[test]
    fn what_becomes_of_a_vip_is_said() {
        let vip = IpAddr::from([10, 0, 0, 1]).into();
        let said = |mode| Step::SetVipMode { vip, mode }.to_string();
        assert_eq!(said(VipMode::SERVED), "serve 10.0.0.1");
        assert_eq!(said(VipMode::GONE), "refuse 10.0.0.1");
        assert_eq!(said(VipMode::HANDED_BACK), "hand back 10.0.0.1");
    }
}
