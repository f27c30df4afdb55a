//! The config maps in the kernel: a [`KernelMaps`] writes them, a [`KernelMapsReader`] only reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    mem::offset_of,
    path::Path,
};

use aya::maps::{HashMap, Map, MapData, MapError as AyaError};
use bytemuck::{Pod, Zeroable};
use mcs_common::{
    Address, BackendRecord, BackendState, ClusterRecord, FrontendKey, FrontendState, ServiceRecord,
    SlotPair, maps,
};

use crate::{
    bpf::{Access, Batch, MappedArray, ReadOnly, ReadWrite, lookup_batch},
    reconcile::{Contents, Dump, MapError, Maps, Step, convert::key_text},
};

/// `bpf(2)`: fail with EEXIST where there is an entry.
const BPF_NOEXIST: u64 = 1;

/// The config maps that are pinned in one directory.
#[derive(Debug)]
pub struct PinnedMaps<A: Access> {
    vips: HashMap<MapData, Address, u32>,
    frontends: HashMap<MapData, FrontendKey, u32>,
    states: MappedArray<FrontendState, A>,
    slots: MappedArray<SlotPair, A>,
    backends: MappedArray<BackendRecord, A>,
    services: MappedArray<ServiceRecord, A>,
    clusters: MappedArray<ClusterRecord, A>,
    readers: A::Barrier,
}

/// The config maps, as the agent opens them.
pub type KernelMaps = PinnedMaps<ReadWrite>;

/// The config maps, as the command line opens them.
pub type KernelMapsReader = PinnedMaps<ReadOnly>;

impl<A: Access> PinnedMaps<A> {
    /// Opens the maps pinned in a directory.
    pub fn open(directory: &Path) -> Result<Self, MapError> {
        Ok(Self {
            vips: open_hash(directory, maps::VIPS)?,
            frontends: open_hash(directory, maps::FRONTENDS)?,
            states: open_array(directory, maps::STATES)?,
            slots: open_array(directory, maps::SLOTS)?,
            backends: open_array(directory, maps::BACKENDS)?,
            services: open_array(directory, maps::SERVICES)?,
            clusters: open_array(directory, maps::CLUSTERS)?,
            readers: A::barrier().map_err(|error| MapError::reading("of maps", "all", error))?,
        })
    }

    /// Reads all maps.
    pub fn read_all(&self) -> Result<Dump, MapError> {
        Ok(Dump {
            vips: entries(&self.vips)
                .map(|entry| entry.map(|(vip, _)| vip))
                .collect::<io::Result<BTreeSet<_>>>()
                .map_err(|error| MapError::reading(maps::VIPS, "all", error))?
                .into(),
            frontends: entries(&self.frontends)
                .collect::<io::Result<BTreeMap<_, _>>>()
                .map_err(|error| MapError::reading(maps::FRONTENDS, "all", error))?
                .into(),
            states: self.states.used().into(),
            slots: self.slots.used().into_iter().flatten().collect(),
            backends: self.backends.used().into(),
            services: self.services.used().into(),
            clusters: self.clusters.used().into(),
        })
    }
}

impl PinnedMaps<ReadWrite> {
    fn do_step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::DeleteVip(vip) => delete(&mut self.vips, vip),
            Step::InsertVip(vip) => insert(&mut self.vips, vip, 0),
            Step::DeleteFrontend(key) => delete(&mut self.frontends, key),
            Step::InsertFrontend { key, index } => insert(&mut self.frontends, key, *index),
            Step::WriteService { id, record } => self.services.write(*id, record),
            Step::WriteCluster { id, record } => self.clusters.write(*id, record),
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
            Step::RetireBackend { id } => {
                let backend = read(&self.backends, *id)?;
                self.backends.write(*id, &BackendRecord { state: BackendState::RETIRED, ..backend })
            }
            Step::WaitForReaders => self.readers.wait(),
        }
    }

    /// Stores the word with the state and the generation last: who remembers the id from its former
    /// use must not take it for the new one before the rest stands there.
    fn write_backend(&mut self, id: u32, backend: &BackendRecord) -> io::Result<()> {
        const STATE: usize = offset_of!(BackendRecord, port) / 8;
        const { assert!(offset_of!(BackendRecord, state) / 8 == STATE) };
        let words: [u64; size_of::<BackendRecord>() / 8] = bytemuck::cast(*backend);
        for word in (0..words.len()).filter(|word| *word != STATE).chain([STATE]) {
            self.backends.publish_word(id, word * 8, words[word])?;
        }
        Ok(())
    }

    /// Stores the words after the extent, and never the extent: it may be any reader's next load.
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
    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        self.do_step(step).map_err(|error| MapError::writing(step, error))
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.read_all()
    }
}

/// A walk through a hash map of the kernel.
#[derive(Debug, Default)]
pub struct HashWalk {
    place: Option<u64>,
    ended: bool,
}

/// Entries that are read at a time: more than any bucket has.
const BATCH: usize = 256;

impl HashWalk {
    fn next<K: Pod + aya::Pod>(
        &mut self,
        map: &HashMap<MapData, K, u32>,
    ) -> io::Result<Option<Vec<K>>> {
        while !self.ended {
            let mut batch = Batch::<K, u32>::new(BATCH, self.place);
            self.ended = !lookup_batch(map, &mut batch)?;
            self.place = batch.place();
            let keys: Vec<K> = batch.entries().map(|(key, _)| key).collect();
            if !keys.is_empty() {
                return Ok(Some(keys));
            }
        }
        Ok(None)
    }
}

impl<A: Access> Contents for PinnedMaps<A> {
    type Walk = HashWalk;

    fn has_vip(&self, vip: &Address) -> Result<bool, MapError> {
        get(&self.vips, vip)
            .map(|found| found.is_some())
            .map_err(|error| MapError::reading(maps::VIPS, vip.to_ip().to_string(), error))
    }

    fn index_of(&self, key: &FrontendKey) -> Result<Option<u32>, MapError> {
        get(&self.frontends, key)
            .map_err(|error| MapError::reading(maps::FRONTENDS, key_text(key), error))
    }

    fn next_vips(&self, walk: &mut HashWalk) -> Result<Option<Vec<Address>>, MapError> {
        walk.next(&self.vips).map_err(|error| MapError::reading(maps::VIPS, "a batch", error))
    }

    fn next_frontends(&self, walk: &mut HashWalk) -> Result<Option<Vec<FrontendKey>>, MapError> {
        walk.next(&self.frontends)
            .map_err(|error| MapError::reading(maps::FRONTENDS, "a batch", error))
    }

    fn state_at(&self, index: u32) -> FrontendState {
        self.states.read(index).unwrap_or(Zeroable::zeroed())
    }

    fn slot_at(&self, index: u32) -> u32 {
        self.slots.read(index / 2).map_or(0, |pair| pair[index as usize % 2])
    }

    fn backend_at(&self, id: u32) -> BackendRecord {
        self.backends.read(id).unwrap_or(Zeroable::zeroed())
    }

    fn service_at(&self, id: u32) -> ServiceRecord {
        self.services.read(id).unwrap_or(Zeroable::zeroed())
    }

    fn cluster_at(&self, id: u32) -> ClusterRecord {
        self.clusters.read(id).unwrap_or(Zeroable::zeroed())
    }
}

fn get<K: Pod + aya::Pod>(map: &HashMap<MapData, K, u32>, key: &K) -> io::Result<Option<u32>> {
    match map.get(key, 0) {
        Ok(value) => Ok(Some(value)),
        Err(AyaError::KeyNotFound) => Ok(None),
        Err(error) => Err(into_io(error)),
    }
}

fn open_hash<K: Pod + aya::Pod>(
    directory: &Path,
    name: &'static str,
) -> Result<HashMap<MapData, K, u32>, MapError> {
    MapData::from_pin(directory.join(name))
        .and_then(|map| HashMap::try_from(Map::HashMap(map)))
        .map_err(|error| MapError::reading(name, "the pin", into_io(error)))
}

fn open_array<T: Pod, A: Access>(
    directory: &Path,
    name: &'static str,
) -> Result<MappedArray<T, A>, MapError> {
    MappedArray::open(&directory.join(name))
        .map_err(|error| MapError::reading(name, "the pin", error))
}

fn read<T: Pod>(array: &MappedArray<T, ReadWrite>, index: u32) -> io::Result<T> {
    array.read(index).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn insert<K: Pod + aya::Pod>(
    map: &mut HashMap<MapData, K, u32>,
    key: &K,
    value: u32,
) -> io::Result<()> {
    match map.insert(key, value, BPF_NOEXIST).map_err(into_io) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
            match map.get(key, 0).map_err(into_io)? {
                same if same == value => Ok(()),
                _ => Err(error),
            }
        }
        result => result,
    }
}

fn delete<K: Pod + aya::Pod>(map: &mut HashMap<MapData, K, u32>, key: &K) -> io::Result<()> {
    match map.remove(key).map_err(into_io) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

fn entries<K: Pod + aya::Pod>(
    map: &HashMap<MapData, K, u32>,
) -> impl Iterator<Item = io::Result<(K, u32)>> + '_ {
    map.iter().map(|entry| entry.map_err(into_io))
}

/// The kernel's error where there is one.
pub(super) fn into_io(error: AyaError) -> io::Error {
    match error {
        AyaError::SyscallError(error) => error.io_error,
        AyaError::KeyNotFound => io::Error::from_raw_os_error(libc::ENOENT),
        error => io::Error::other(error),
    }
}
