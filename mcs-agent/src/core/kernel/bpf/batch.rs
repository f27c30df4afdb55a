//! Reading the entries of a hash map, many with one system call. aya has no batch operations.

use std::{io, os::fd::AsFd as _};

use aya::maps::{HashMap, IterableMap as _, MapData};
use aya_obj::generated::bpf_cmd;
use bytemuck::Pod;

use super::syscall::{call, fd_field, zeroed_attr};

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
