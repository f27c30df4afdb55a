//! The config maps in memory, with the sizes and errors of the kernel's.

use std::{collections::BTreeSet, io};

use bytemuck::Zeroable;
use mcs_common::{
    Address, AddressKinds, BackendRecord, FrontendKey, FrontendState, VipMode,
    select::{Arrays, Tables},
};

use crate::core::{
    model::Capacity,
    tables::{MapContents, MapError, MapReader, Maps, NameMap, NameRecord, Step},
};

/// The config maps in memory, with the sizes that the kernel's would have. The programs' selection
/// code reads them.
#[derive(Clone, Debug)]
pub struct MemoryMaps {
    capacity: Capacity,
    contents: MapContents,
    hints: Hints,
}

/// The hints of exactly the addresses that they were set for.
#[derive(Clone, Debug, Default)]
struct Hints {
    vips: BTreeSet<Address>,
    backends: BTreeSet<Address>,
    /// Whether every address may be a backend, since a hint was repaired.
    all_backends: bool,
}

impl Hints {
    fn of(contents: &MapContents) -> Self {
        Self {
            vips: contents.vips.keys().copied().collect(),
            backends: contents.backends.iter().map(|backend| backend.addr).collect(),
            all_backends: false,
        }
    }

    fn set(&mut self, address: Address, hint: AddressKinds) {
        if hint.may_be_vip() {
            self.vips.insert(address);
        }
        if hint.may_be_backend() {
            self.backends.insert(address);
        }
    }

    fn get(&self, address: &Address) -> AddressKinds {
        let hint = |set: &BTreeSet<Address>, hint| {
            if set.contains(address) { hint } else { AddressKinds::NONE }
        };
        let anywhere = if self.all_backends { AddressKinds::BACKEND } else { AddressKinds::NONE };
        hint(&self.vips, AddressKinds::VIP) | hint(&self.backends, AddressKinds::BACKEND) | anywhere
    }
}

impl MemoryMaps {
    /// New maps, without entries.
    pub fn new(capacity: Capacity) -> Self {
        Self::with_contents(capacity, MapContents::default())
    }

    /// Maps that hold these entries.
    pub fn with_contents(capacity: Capacity, contents: MapContents) -> Self {
        Self { capacity, hints: Hints::of(&contents), contents }
    }

    /// The same maps, without any hint.
    #[cfg(test)]
    pub(crate) fn without_hints(mut self) -> Self {
        self.hints = Hints::default();
        self
    }

    /// Their entries.
    pub const fn contents(&self) -> &MapContents {
        &self.contents
    }

    /// The error that the kernel would return.
    fn check(&self, step: &Step) -> io::Result<()> {
        let capacity = self.capacity;
        match *step {
            Step::InsertVip(vip) => match self.contents.vip(&vip) {
                Some(mode) if mode != VipMode::SERVED => {
                    Err(io::Error::from_raw_os_error(libc::EEXIST))
                }
                found => hash(self.contents.vips.len(), found.is_some(), capacity.vips),
            },
            Step::SetVipMode { vip, .. } => {
                hash(self.contents.vips.len(), self.contents.vip(&vip).is_some(), capacity.vips)
            }
            Step::InsertFrontend { key, index } => match self.contents.frontends.get(&key) {
                Some(&found) if found != index => Err(io::Error::from_raw_os_error(libc::EEXIST)),
                found => hash(self.contents.frontends.len(), found.is_some(), capacity.frontends),
            },
            Step::WriteName { map, id, .. } => array(id, 1, map.entries(capacity)),
            Step::WriteBackend { id, .. }
            | Step::RetireBackend { id }
            | Step::KeepBackend { id }
            | Step::ResumeBackend { id } => array(id, 1, capacity.backend_entries()),
            Step::WriteSlots { block, ref ids } => array(block, ids.len(), capacity.slot_entries()),
            Step::WriteState { index, .. }
            | Step::UpdateAttributes { index, .. }
            | Step::Flip { index, .. } => array(index, 1, capacity.state_entries()),
            Step::DeleteVip(_)
            | Step::DeleteFrontend(_)
            | Step::RepairHint { .. }
            | Step::WaitForReaders => Ok(()),
        }
    }
}

/// An insertion into a hash map.
fn hash(len: usize, known: bool, entries: u32) -> io::Result<()> {
    fits(known || len < entries as usize)
}

/// A write to entries of an array.
fn array(first: u32, count: usize, entries: u32) -> io::Result<()> {
    fits(first as usize + count <= entries as usize)
}

fn fits(fits: bool) -> io::Result<()> {
    if fits { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::E2BIG)) }
}

impl Maps for MemoryMaps {
    type Reader = Self;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        self.check(step).map_err(|source| MapError::writing(step, source))?;
        match *step {
            Step::InsertVip(vip) | Step::SetVipMode { vip, .. } => {
                self.hints.set(vip, AddressKinds::VIP);
            }
            Step::WriteBackend { backend, .. } => {
                self.hints.set(backend.addr, AddressKinds::BACKEND);
            }
            Step::RepairHint { address, hint } => {
                self.hints.set(address, hint);
                self.hints.all_backends = true;
            }
            _ => {}
        }
        self.contents.write(step);
        Ok(())
    }

    fn reader(&self) -> &Self {
        self
    }
}

impl MapReader for MemoryMaps {
    fn read_all(&self) -> Result<MapContents, MapError> {
        Ok(self.contents.clone())
    }

    fn vip_mode(&self, vip: &Address) -> Result<Option<u32>, MapError> {
        Ok(self.contents.vip(vip))
    }

    fn kinds_of(&self, address: &Address) -> AddressKinds {
        self.hints.get(address)
    }

    fn index_of(&self, key: &FrontendKey) -> Result<Option<u32>, MapError> {
        Ok(self.contents.frontend(key))
    }

    fn vips(&self) -> Result<Vec<Address>, MapError> {
        Ok(self.contents.vips.keys().copied().collect())
    }

    fn frontends(&self) -> Result<Vec<FrontendKey>, MapError> {
        Ok(self.contents.frontends.keys().copied().collect())
    }

    fn name(&self, map: NameMap, id: u32) -> Option<NameRecord> {
        (id < map.entries(self.capacity)).then(|| self.contents.name(map, id))
    }
}

/// Entries read as zeros where nothing was written, up to the end of the array.
impl Arrays for MemoryMaps {
    fn state(&self, index: u32) -> Option<FrontendState> {
        let exists = index < self.capacity.state_entries();
        exists.then(|| self.contents.state(index).unwrap_or(Zeroable::zeroed()))
    }

    fn slot(&self, index: u32) -> Option<u32> {
        let exists = index < self.capacity.slot_entries();
        exists.then(|| self.contents.slot(index).unwrap_or_default())
    }

    fn backend(&self, id: u32) -> Option<BackendRecord> {
        let exists = id < self.capacity.backend_entries();
        exists.then(|| self.contents.backend(id).unwrap_or(Zeroable::zeroed()))
    }
}

impl Tables for MemoryMaps {
    fn kinds_of(&self, address: &Address) -> AddressKinds {
        self.hints.get(address)
    }

    fn vip(&self, address: &Address) -> Option<u32> {
        self.contents.vip(address)
    }

    fn are_released(&self) -> bool {
        false
    }

    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        self.contents.frontend(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tables::{contents::frontend_key, fixtures::id};

    #[test]
    fn what_is_full_says_so() {
        let key = |port| frontend_key(&id("10.0.0.1", port));
        let insert = |port, index| Step::InsertFrontend { key: key(port), index };
        let mut maps = MemoryMaps::new(Capacity {
            vips: 1,
            frontends: 1,
            endpoints: 1,
            clusters: 1,
            imports: 1,
        });
        let cases = [
            (Step::InsertVip(key(80).vip), None),
            (Step::InsertVip(key(80).vip), None),
            (Step::InsertVip(frontend_key(&id("10.0.0.2", 80)).vip), Some(libc::E2BIG)),
            (insert(80, 1), None),
            (insert(80, 1), None),
            (insert(80, 2), Some(libc::EEXIST)),
            (insert(81, 1), Some(libc::E2BIG)),
            (Step::DeleteFrontend(key(80)), None),
            (Step::DeleteFrontend(key(80)), None),
            (insert(81, 1), None),
            (Step::WriteSlots { block: 2, ids: vec![1, 2] }, None),
            (Step::WriteSlots { block: 3, ids: vec![1, 2] }, Some(libc::E2BIG)),
            (Step::RetireBackend { id: 2 }, None),
            (Step::RetireBackend { id: 3 }, Some(libc::E2BIG)),
            (Step::WriteState { index: 1, state: Box::new(Zeroable::zeroed()) }, None),
            (Step::WriteState { index: 2, state: Box::new(Zeroable::zeroed()) }, Some(libc::E2BIG)),
        ];
        for (step, expected) in cases {
            let answer = maps.write(&step).err().and_then(|error| error.source.raw_os_error());
            assert_eq!(answer, expected, "{step}");
        }
    }

    #[test]
    fn arrays_read_as_zeros_up_to_their_end() {
        let maps = MemoryMaps::new(Capacity {
            vips: 1,
            frontends: 1,
            endpoints: 1,
            clusters: 1,
            imports: 1,
        });
        assert_eq!(maps.slot(3), Some(0));
        assert_eq!(maps.slot(4), None);
        assert_eq!(maps.backend(2), Some(Zeroable::zeroed()));
        assert_eq!(maps.backend(3), None);
        assert_eq!(maps.state(1), Some(Zeroable::zeroed()));
        assert_eq!(maps.state(2), None);
    }
}
