//! Reading many entries of a hash map with one system call. aya has no batch operations.

use std::{io, os::fd::AsFd as _};

use aya::maps::{HashMap, IterableMap as _, MapData};
use aya_obj::generated::bpf_cmd;
use bytemuck::Pod;

use super::syscall::{call, fd_field, zeroed_attr};

/// Entries of a hash map, as [`lookup_batch`] reads them.
#[derive(Debug)]
pub(super) struct Batch<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    filled: usize,
    /// The kernel's mark of the place where the next call begins; `None` before the first.
    next: Option<u64>,
}

impl<K: Pod, V: Pod> Batch<K, V> {
    /// A batch of at most `room` entries, which has to be more than any bucket of the map has.
    pub(super) fn new(room: usize) -> Self {
        Self {
            keys: vec![K::zeroed(); room],
            values: vec![V::zeroed(); room],
            filled: 0,
            next: None,
        }
    }

    /// The entries that the last call read.
    pub(super) fn entries(&self) -> impl Iterator<Item = (K, V)> {
        self.keys.iter().copied().zip(self.values.iter().copied()).take(self.filled)
    }
}

/// Reads the next entries of a hash map. Returns whether there are more.
///
/// The kernel goes bucket by bucket (`__htab_map_lookup_and_delete_batch`, kernel/bpf/hashtab.c). So the walk
/// ends whatever is written meanwhile, and returns an entry that stays in the map exactly once.
pub(super) fn lookup_batch<K: Pod + aya::Pod, V: Pod + aya::Pod>(
    map: &HashMap<MapData, K, V>,
    batch: &mut Batch<K, V>,
) -> io::Result<bool> {
    let mut next = 0_u64;
    let mut attr = zeroed_attr();
    attr.batch.map_fd = fd_field(map.map().fd().as_fd());
    attr.batch.in_batch =
        batch.next.as_ref().map_or(0, |next| std::ptr::from_ref(next).addr() as u64);
    attr.batch.out_batch = (&raw mut next).addr() as u64;
    attr.batch.keys = batch.keys.as_mut_ptr().addr() as u64;
    attr.batch.values = batch.values.as_mut_ptr().addr() as u64;
    attr.batch.count = u32::try_from(batch.keys.len()).map_err(io::Error::other)?;
    // SAFETY: keys and values have room for `count` entries and outlive the call; aya has compared their
    // sizes with the map's. Both places of the walk outlive it too.
    let result = unsafe { call(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) };
    let more = match result {
        Ok(_) => true,
        // The end of the map. The kernel has filled in the last entries all the same.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => false,
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel has written the field.
    batch.filled = unsafe { attr.batch.count } as usize;
    batch.next = Some(next);
    Ok(more)
}
