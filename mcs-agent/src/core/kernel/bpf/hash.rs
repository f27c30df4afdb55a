//! Pinned hash maps with the errors of the system call.

use std::{io, path::Path};

use aya::maps::{HashMap, Map, MapData, MapError};
use bytemuck::Pod;

use super::batch;

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
        batch::for_each(&self.map, take)
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
