//! Pinned hash maps: single entries with the errors of the system call, and many entries with one system call. aya has no
//! batch operations.

use std::{io, os::fd::AsFd as _, path::Path};

use aya::maps::{HashMap, IterableMap as _, Map, MapData, MapError};
use aya_obj::generated::bpf_cmd;
use bytemuck::Pod;

use super::syscall::{call, fd_field, zeroed_attr};

/// `bpf(2)`: fail with EEXIST where there is an entry.
const BPF_NOEXIST: u64 = 1;

/// A pinned hash map, or one with the eviction of the least recently used entry. A read from here makes no entry
/// more recently used.
#[derive(Debug)]
pub(crate) struct PinnedHash<K, V> {
    map: HashMap<MapData, K, V>,
    max_entries: u32,
}

impl<K: Pod + aya::Pod, V: Pod + aya::Pod> PinnedHash<K, V> {
    /// Opens the map that is pinned here. Keys and values have the sizes of its types.
    pub(crate) fn open(pin: &Path) -> io::Result<Self> {
        let map = MapData::from_pin(pin).map_err(into_io)?;
        let max_entries = map.info().map_err(into_io)?.max_entries();
        let map = HashMap::try_from(Map::HashMap(map)).map_err(into_io)?;
        Ok(Self { map, max_entries })
    }

    /// Entries for which there is room.
    pub(crate) const fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// The value under a key.
    pub(crate) fn get(&self, key: &K) -> io::Result<Option<V>> {
        match self.map.get(key, 0) {
            Ok(value) => Ok(Some(value)),
            Err(error) => absent(into_io(error), None),
        }
    }

    /// Adds an entry. Returns whether it did: it does not change an existing entry.
    pub(crate) fn add(&mut self, key: &K, value: V) -> io::Result<bool> {
        match self.map.insert(key, value, BPF_NOEXIST).map_err(into_io) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds or replaces an entry.
    pub(crate) fn set(&mut self, key: &K, value: V) -> io::Result<()> {
        self.map.insert(key, value, 0).map_err(into_io)
    }

    /// Removes an entry. An absent entry counts as success.
    pub(crate) fn remove(&mut self, key: &K) -> io::Result<()> {
        self.map.remove(key).map_err(into_io).or_else(|error| absent(error, ()))
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        self.map.keys().next().transpose().map(|key| key.is_none()).map_err(into_io)
    }

    /// Reads every entry.
    pub(crate) fn for_each(&self, take: impl FnMut(K, V)) -> io::Result<()> {
        for_each(&self.map, take)
    }

    /// Every key.
    pub(crate) fn keys(&self) -> io::Result<Vec<K>> {
        let mut keys = Vec::new();
        self.for_each(|key, _| keys.push(key))?;
        Ok(keys)
    }
}

fn absent<T>(error: io::Error, value: T) -> io::Result<T> {
    if error.raw_os_error() == Some(libc::ENOENT) { Ok(value) } else { Err(error) }
}

/// The kernel's error where there is one.
pub(crate) fn into_io(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::KeyNotFound => io::Error::from_raw_os_error(libc::ENOENT),
        error => io::Error::other(error),
    }
}

/// Entries of one system call. It has to be more than any bucket of a map has.
const ROOM: usize = 1024;

/// Reads every entry of a hash map.
///
/// The kernel goes bucket by bucket (`__htab_map_lookup_and_delete_batch`, kernel/bpf/hashtab.c). So the walk
/// ends whatever is written meanwhile, and returns an entry that stays in the map exactly once.
pub(super) fn for_each<K: Pod + aya::Pod, V: Pod + aya::Pod>(
    map: &HashMap<MapData, K, V>,
    mut take: impl FnMut(K, V),
) -> io::Result<()> {
    let (mut keys, mut values) = (vec![K::zeroed(); ROOM], vec![V::zeroed(); ROOM]);
    // The kernel's mark of the place where the next call begins.
    let mut place = None;
    loop {
        let mut next = 0_u64;
        let mut attr = zeroed_attr();
        attr.batch.map_fd = fd_field(map.map().fd().as_fd());
        attr.batch.in_batch =
            place.as_ref().map_or(0, |place| std::ptr::from_ref::<u64>(place).addr() as u64);
        attr.batch.out_batch = (&raw mut next).addr() as u64;
        attr.batch.keys = keys.as_mut_ptr().addr() as u64;
        attr.batch.values = values.as_mut_ptr().addr() as u64;
        attr.batch.count = u32::try_from(ROOM).map_err(io::Error::other)?;
        // SAFETY: keys and values have room for `count` entries and outlive the call; aya has compared their
        // sizes with the map's. Both places of the walk outlive it too.
        let result = unsafe { call(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) };
        let is_last = match result {
            Ok(_) => false,
            // The end of the map. The kernel has filled in the last entries all the same.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error),
        };
        // SAFETY: the kernel has written the field.
        let filled = unsafe { attr.batch.count } as usize;
        keys.iter().zip(&values).take(filled).for_each(|(key, value)| take(*key, *value));
        if is_last {
            return Ok(());
        }
        place = Some(next);
    }
}
