//! The config maps in the kernel: a [`KernelMaps`] writes them, a [`KernelMapsReader`] only reads.

use std::{io, mem::offset_of, path::Path};

use bytemuck::Pod;
use mcs_common::{
    Address, AddressKinds, BackendRecord, BackendState, FrontendKey, FrontendState, SlotPair,
    VipMode, maps, select::Arrays,
};

use super::address_filter::{AddressFilter, FilterDensity, FormerFilter};
use crate::core::{
    kernel::bpf::{Access, MappedArray, PinnedHash, ReadOnly, ReadWrite, ReaderBarrier},
    tables::{
        MapContents, MapError, MapReader, Maps, NameMap, NameRecord, SharedMap, Step,
        contents::key_text,
    },
};

/// The config maps that are pinned in one directory.
#[derive(Debug)]
pub struct PinnedMaps<A: Access> {
    vips: PinnedHash<Address, u32>,
    frontends: PinnedHash<FrontendKey, u32>,
    states: MappedArray<FrontendState, A>,
    slots: MappedArray<SlotPair, A>,
    backends: MappedArray<BackendRecord, A>,
    /// In the order of [`NameMap::ALL`].
    names: Vec<MappedArray<NameRecord, A>>,
    /// Of the agent's maps alone.
    filter: Option<AddressFilter<A>>,
    /// Of the agent's maps alone.
    readers: Option<ReaderBarrier>,
}

/// The config maps, as the agent opens them.
pub type KernelMaps = PinnedMaps<ReadWrite>;

/// The config maps, as the command line opens them.
pub type KernelMapsReader = PinnedMaps<ReadOnly>;

impl<A: Access> PinnedMaps<A> {
    fn open_all(
        directory: &Path,
        filter: Option<AddressFilter<A>>,
        readers: Option<ReaderBarrier>,
    ) -> Result<Self, MapError> {
        Ok(Self {
            filter,
            vips: open_hash(directory, maps::VIPS)?,
            frontends: open_hash(directory, maps::FRONTENDS)?,
            states: open_array(directory, maps::STATES)?,
            slots: open_array(directory, maps::SLOTS)?,
            backends: open_array(directory, maps::BACKENDS)?,
            names: NameMap::ALL
                .into_iter()
                .map(|map| open_names(directory, map))
                .collect::<Result<_, _>>()?,
            readers,
        })
    }
}

impl PinnedMaps<ReadOnly> {
    /// Opens the maps pinned in a directory.
    pub fn open(directory: &Path) -> Result<Self, MapError> {
        Self::open_all(directory, None, None)
    }

    /// Opens the maps pinned in a directory, and their address filter.
    pub fn open_with_filter(directory: &Path, filter: &Path) -> Result<Self, MapError> {
        Self::open_all(directory, Some(AddressFilter::open(filter)?), None)
    }
}

impl PinnedMaps<ReadWrite> {
    /// Opens the maps pinned in a directory, and their address filter.
    pub fn open(directory: &Path, filter: &Path) -> Result<Self, MapError> {
        let readers =
            ReaderBarrier::new().map_err(|error| MapError::reading("of maps", "all", error))?;
        Self::open_all(directory, Some(AddressFilter::open(filter)?), Some(readers))
    }

    /// Completes the address filter: for the VIPs and backends in these maps, and for the backends that sockets and flows
    /// of an earlier agent may have.
    pub fn prepare_filter(&mut self, former: &FormerFilter) -> Result<(), MapError> {
        let carried = self.filter.as_mut().map_or(Ok(()), |filter| filter.carry_over(former));
        carried
            .and_then(|()| self.allow_all())
            .map_err(|error| MapError::reading(maps::HINTS, "all", error))
    }

    /// How many buckets of the address filter are set, once it is prepared.
    pub fn filter_density(&self) -> FilterDensity {
        self.filter.as_ref().map(AddressFilter::density).unwrap_or_default()
    }

    /// Begins a rebuild of the address filter: it keeps the addresses that these maps have from now on.
    pub fn begin_filter_rebuild(&mut self) -> io::Result<()> {
        if let Some(filter) = &mut self.filter {
            filter.begin_rebuild();
        }
        self.allow_all()
    }

    /// Ends a rebuild: the address filter also keeps these addresses, which sockets and flows had after its beginning.
    /// Returns false if none had begun with these maps.
    pub fn finish_filter_rebuild(&mut self, in_use: &[Address]) -> io::Result<bool> {
        self.filter.as_mut().map_or(Ok(false), |filter| filter.finish_rebuild(in_use))
    }

    /// Sets the bits of all addresses in these maps.
    fn allow_all(&mut self) -> io::Result<()> {
        let Some(filter) = &mut self.filter else { return Ok(()) };
        let vips = self.vips.keys()?;
        vips.iter().try_for_each(|vip| filter.set(vip, AddressKinds::VIP))?;
        // Those of retired backends too: a program that has chosen one may not have stored it yet.
        let backends = self.backends.used();
        backends.iter().try_for_each(|one| filter.set(&one.addr, AddressKinds::BACKEND))
    }

    fn allow(&mut self, address: &Address, kinds: AddressKinds) -> io::Result<()> {
        self.filter.as_mut().map_or(Ok(()), |filter| filter.set(address, kinds))
    }

    fn do_step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::DeleteVip(vip) => self.vips.remove(vip),
            Step::InsertVip(vip) => {
                self.allow(vip, AddressKinds::VIP)?;
                insert(&mut self.vips, vip, VipMode::SERVED)
            }
            Step::SetVipMode { vip, mode } => {
                self.allow(vip, AddressKinds::VIP)?;
                self.vips.set(vip, *mode)
            }
            Step::RepairHint { address, hint } => {
                self.filter.as_mut().map_or(Ok(()), |filter| filter.repair(address, *hint))
            }
            Step::DeleteFrontend(key) => self.frontends.remove(key),
            Step::InsertFrontend { key, index } => insert(&mut self.frontends, key, *index),
            Step::WriteName { map, id, record } => self.names[*map as usize].write(*id, record),
            Step::WriteBackend { id, backend } => self.write_backend(*id, backend),
            Step::WriteSlots { block, ids } => {
                (*block..).zip(ids).try_for_each(|(slot, id)| self.slots.store_in_pair(slot, *id))
            }
            Step::WriteState { index, state } => self.states.write(*index, state),
            Step::UpdateAttributes { index, service, flags, affinity_seconds } => {
                let state = read(&self.states, *index)?;
                self.update_attributes(
                    *index,
                    &FrontendState {
                        service: *service,
                        flags: *flags,
                        affinity_seconds: *affinity_seconds,
                        ..state
                    },
                )
            }
            Step::Flip { index, extent } => {
                let offset = offset_of!(FrontendState, extent);
                self.states.publish_word(*index, offset, bytemuck::cast(*extent))
            }
            Step::RetireBackend { id } => self.set_backend_state(*id, BackendState::RETIRED),
            Step::KeepBackend { id } => self.set_backend_state(*id, BackendState::KEPT),
            Step::ResumeBackend { id } => self.set_backend_state(*id, BackendState::ACTIVE),
            Step::WaitForReaders => self.readers.as_ref().map_or(Ok(()), ReaderBarrier::wait),
        }
    }

    /// Sets the number that a frontend carries for a feature.
    pub fn set_row(&mut self, index: u32, row: u32) -> io::Result<()> {
        let state = read(&self.states, index)?;
        if state.row == row {
            return Ok(());
        }
        self.update_attributes(index, &FrontendState { row, ..state })
    }

    /// Sets the number that a backend carries for a feature.
    pub fn set_column(&mut self, id: u32, column: u8) -> io::Result<()> {
        const WORD: usize = offset_of!(BackendRecord, column) / 8;
        let backend = read(&self.backends, id)?;
        if backend.column == column {
            return Ok(());
        }
        let words: [u64; size_of::<BackendRecord>() / 8] =
            bytemuck::cast(BackendRecord { column, ..backend });
        self.backends.publish_word(id, WORD * 8, words[WORD])
    }

    /// Sets the numbers of all frontends, by import, and of all backends, by source cluster.
    pub fn set_columns(
        &mut self,
        row_of: impl Fn(u32) -> u32,
        column_of: impl Fn(u32) -> u8,
    ) -> io::Result<()> {
        for index in 1..self.states.entries() {
            let state = read(&self.states, index)?;
            self.set_row(index, row_of(state.service))?;
        }
        for id in 1..self.backends.entries() {
            let backend = read(&self.backends, id)?;
            if backend.state != BackendState::FREE {
                self.set_column(id, column_of(backend.cluster))?;
            }
        }
        Ok(())
    }

    fn set_backend_state(&mut self, id: u32, state: u8) -> io::Result<()> {
        let backend = read(&self.backends, id)?;
        self.backends.write(id, &BackendRecord { state, ..backend })
    }

    /// Stores the word with the state and the generation last: a program that remembers the id from its former use must
    /// not take it for the new backend before the other words are written.
    fn write_backend(&mut self, id: u32, backend: &BackendRecord) -> io::Result<()> {
        const STATE: usize = offset_of!(BackendRecord, port) / 8;
        const { assert!(offset_of!(BackendRecord, state) / 8 == STATE) };
        self.allow(&backend.addr, AddressKinds::BACKEND)?;
        let words: [u64; size_of::<BackendRecord>() / 8] = bytemuck::cast(*backend);
        for word in (0..words.len()).filter(|word| *word != STATE).chain([STATE]) {
            self.backends.publish_word(id, word * 8, words[word])?;
        }
        Ok(())
    }

    /// Stores the words after the extent, and never the extent, which programs read at any time.
    fn update_attributes(&mut self, index: u32, state: &FrontendState) -> io::Result<()> {
        const FIRST: usize = offset_of!(FrontendState, service);
        let words: [u64; size_of::<FrontendState>() / 8] = bytemuck::cast(*state);
        for (word, value) in words.iter().enumerate().skip(FIRST / 8) {
            self.states.publish_word(index, word * 8, *value)?;
        }
        Ok(())
    }
}

impl Maps for KernelMaps {
    type Reader = Self;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        self.do_step(step).map_err(|error| MapError::writing(step, error))
    }

    fn reader(&self) -> &Self {
        self
    }
}

impl<A: Access> MapReader for PinnedMaps<A> {
    fn read_all(&self) -> Result<MapContents, MapError> {
        Ok(MapContents {
            // Before the VIPs: the agent inserts a frontend before its VIP. In the other order, a frontend that is
            // inserted between the two reads would lack its VIP and look inactive.
            frontends: entries(&self.frontends, maps::FRONTENDS)?,
            vips: entries(&self.vips, maps::VIPS)?,
            states: self.states.used().into_iter().map(without_row).collect::<Vec<_>>().into(),
            slots: self.slots.used().into_iter().flatten().collect(),
            backends: self
                .backends
                .used()
                .into_iter()
                .map(without_column)
                .collect::<Vec<_>>()
                .into(),
            names: NameMap::ALL.map(|map| self.names[map as usize].used().into()),
        })
    }

    fn vip_mode(&self, vip: &Address) -> Result<Option<u32>, MapError> {
        self.vips
            .get(vip)
            .map_err(|error| MapError::reading(maps::VIPS, vip.to_ip().to_string(), error))
    }

    fn kinds_of(&self, address: &Address) -> AddressKinds {
        self.filter.as_ref().map_or(AddressKinds::ANY, |filter| filter.get(address))
    }

    fn index_of(&self, key: &FrontendKey) -> Result<Option<u32>, MapError> {
        self.frontends
            .get(key)
            .map_err(|error| MapError::reading(maps::FRONTENDS, key_text(key), error))
    }

    fn vips(&self) -> Result<Vec<Address>, MapError> {
        self.vips.keys().map_err(|error| MapError::reading(maps::VIPS, "all", error))
    }

    fn frontends(&self) -> Result<Vec<FrontendKey>, MapError> {
        self.frontends.keys().map_err(|error| MapError::reading(maps::FRONTENDS, "all", error))
    }

    fn name(&self, map: NameMap, id: u32) -> Option<NameRecord> {
        self.names[map as usize].read(id)
    }
}

impl<A: Access> Arrays for PinnedMaps<A> {
    fn state(&self, index: u32) -> Option<FrontendState> {
        self.states.read(index).map(without_row)
    }

    fn slot(&self, index: u32) -> Option<u32> {
        Some(self.slots.read(index / 2)?[index as usize % 2])
    }

    fn backend(&self, id: u32) -> Option<BackendRecord> {
        self.backends.read(id).map(without_column)
    }
}

/// The model of the maps knows no figures.
fn without_row(state: FrontendState) -> FrontendState {
    FrontendState { row: 0, ..state }
}

/// As [`without_row`].
fn without_column(backend: BackendRecord) -> BackendRecord {
    BackendRecord { column: 0, ..backend }
}

fn open_hash<K: Pod + aya::Pod>(
    directory: &Path,
    name: &'static str,
) -> Result<PinnedHash<K, u32>, MapError> {
    PinnedHash::open(&directory.join(name))
        .map_err(|error| MapError::reading(name, "the pin", error))
}

fn open_array<T: Pod, A: Access>(
    directory: &Path,
    name: &'static str,
) -> Result<MappedArray<T, A>, MapError> {
    MappedArray::open(&directory.join(name))
        .map_err(|error| MapError::reading(name, "the pin", error))
}

fn open_names<A: Access>(
    directory: &Path,
    map: NameMap,
) -> Result<MappedArray<NameRecord, A>, MapError> {
    MappedArray::open_beginning(&directory.join(map.map()), map.value_size())
        .map_err(|error| MapError::reading(map.map(), "the pin", error))
}

/// Every entry, by its key.
fn entries<K: Pod + aya::Pod + Ord>(
    map: &PinnedHash<K, u32>,
    name: &'static str,
) -> Result<SharedMap<K, u32>, MapError> {
    let mut entries = SharedMap::default();
    map.for_each(|key, value| _ = entries.insert(key, value))
        .map_err(|error| MapError::reading(name, "all", error))?;
    Ok(entries)
}

fn read<T: Pod>(array: &MappedArray<T, ReadWrite>, index: u32) -> io::Result<T> {
    array.read(index).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Adds an entry. An existing one with the same value counts as success.
fn insert<K: Pod + aya::Pod>(map: &mut PinnedHash<K, u32>, key: &K, value: u32) -> io::Result<()> {
    if map.add(key, value)? || map.get(key)? == Some(value) {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::EEXIST))
}
