//! Arrays of the kernel that are mapped into this process.

use std::{
    ffi::c_void,
    fmt::Debug,
    io,
    marker::PhantomData,
    path::Path,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use aya::maps::MapData;
use bytemuck::Pod;
use rustix::{
    fd::AsFd as _,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use super::into_io;

/// How a map is opened: [`ReadOnly`] or [`ReadWrite`].
pub trait Access: Debug + 'static {
    /// What the kernel enforces for a mapping.
    const PROTECTION: ProtFlags;
    /// Whether values of another size are taken too.
    const OTHER_SIZES: bool;
}

/// The command line reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

/// The agent writes.
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite;

impl Access for ReadOnly {
    const OTHER_SIZES: bool = true;
    const PROTECTION: ProtFlags = ProtFlags::READ;
}

impl Access for ReadWrite {
    const OTHER_SIZES: bool = false;
    const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
}

/// A pinned array with `BPF_F_MMAPABLE`, mapped as a whole: a write is a store, no system call, and
/// cannot fail. The programs read it at any time, so nothing here makes a reference to its content. aya
/// reads and writes an array by system calls.
#[derive(Debug)]
pub(crate) struct MappedArray<T, A> {
    base: NonNull<u64>,
    entries: u32,
    /// Words from one entry to the next.
    stride: usize,
    types: PhantomData<(T, A)>,
}

// SAFETY: the mapping belongs to this value alone, and every access to it is volatile or atomic.
unsafe impl<T: Send, A> Send for MappedArray<T, A> {}

/// Words of the largest value.
const WORDS: usize = 64;

impl<T, A> MappedArray<T, A> {
    /// Words of a value. The kernel keeps each at a multiple of 8 bytes (`array_map_alloc`,
    /// kernel/bpf/arraymap.c).
    const LENGTH: usize = {
        assert!(size_of::<T>() <= WORDS * 8);
        size_of::<T>().div_ceil(8)
    };

    /// How many entries it has.
    pub(crate) const fn entries(&self) -> u32 {
        self.entries
    }

    const fn bytes(&self) -> usize {
        self.entries as usize * self.stride * 8
    }
}

impl<T: Pod, A: Access> MappedArray<T, A> {
    /// Maps a pinned array.
    ///
    /// A reader maps the array of another version too, since values grow at their end: it reads the
    /// beginning of a longer value, and a shorter one as if zeros followed.
    pub(crate) fn open(pin: &Path) -> io::Result<Self> {
        Self::open_beginning(pin, size_of::<T>())
    }

    /// Maps a pinned array whose values have only the first bytes of `T`. A read gives zeros for the rest. A write drops the
    /// rest.
    pub(crate) fn open_beginning(pin: &Path, bytes: usize) -> io::Result<Self> {
        let map = MapData::from_pin(pin).map_err(into_io)?;
        let info = map.info().map_err(into_io)?;
        let value_size = info.value_size() as usize;
        let is_version = value_size.is_multiple_of(8) && size_of::<T>().is_multiple_of(8);
        if value_size != bytes && !(A::OTHER_SIZES && is_version) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("its values have {} bytes instead of {bytes}", info.value_size()),
            ));
        }
        let entries = info.max_entries();
        let stride = value_size.div_ceil(8);
        // SAFETY: a new mapping, of an object that cannot shrink.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                entries as usize * stride * 8,
                A::PROTECTION,
                MapFlags::SHARED,
                map.fd().as_fd(),
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, entries, stride, types: PhantomData })
    }

    /// Entry `index`, read word by word; `None` beyond the end.
    pub(crate) fn read(&self, index: u32) -> Option<T> {
        let from = self.entry(index)?;
        let mut words = [0_u64; WORDS];
        let words = &mut words[..Self::LENGTH];
        for (offset, word) in words.iter_mut().enumerate().take(self.stride) {
            // SAFETY: `entry` checked the bounds of all `stride` words.
            *word = unsafe { from.add(offset).read_volatile() };
        }
        Some(bytemuck::pod_read_unaligned(&bytemuck::cast_slice(words)[..size_of::<T>()]))
    }

    /// Every entry up to the last one that is not zero.
    pub(crate) fn used(&self) -> Vec<T> {
        let is_zero = |value: &T| bytemuck::bytes_of(value).iter().all(|byte| *byte == 0);
        let is_used = |index: &u32| self.read(*index).is_some_and(|value| !is_zero(&value));
        let used = (0..self.entries).rev().find(is_used).map_or(0, |last| last + 1);
        (0..used).filter_map(|index| self.read(index)).collect()
    }

    fn entry(&self, index: u32) -> Option<*mut u64> {
        // SAFETY: in bounds of the mapping.
        (index < self.entries)
            .then(|| unsafe { self.base.as_ptr().add(index as usize * self.stride) })
    }
}

impl<T: Pod> MappedArray<T, ReadWrite> {
    /// Overwrites entry `index`, word by word. Readers may see some words old and some new.
    pub(crate) fn write(&mut self, index: u32, value: &T) -> io::Result<()> {
        let to = self.entry_mut(index)?;
        let mut words = [0_u64; WORDS];
        bytemuck::cast_slice_mut(&mut words)[..size_of::<T>()]
            .copy_from_slice(bytemuck::bytes_of(value));
        for (offset, word) in words[..Self::LENGTH].iter().enumerate().take(self.stride) {
            // SAFETY: `entry_mut` checked the bounds of all `stride` words.
            unsafe { to.add(offset).write_volatile(*word) };
        }
        Ok(())
    }

    /// Overwrites the word at byte `offset` of entry `index` at once, after all writes before it.
    pub(crate) fn publish_word(&mut self, index: u32, offset: usize, word: u64) -> io::Result<()> {
        self.word(index, offset)?.store(word, Ordering::Release);
        Ok(())
    }

    /// Overwrites half a word at byte `offset` of entry `index` at once, if it is `from`. Returns whether it was.
    pub(crate) fn replace_half(
        &mut self,
        index: u32,
        offset: usize,
        from: u32,
        to: u32,
    ) -> io::Result<bool> {
        let half = self.half(index, offset)?;
        Ok(half.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok())
    }

    fn word(&mut self, index: u32, offset: usize) -> io::Result<&AtomicU64> {
        assert!(offset.is_multiple_of(8) && offset < self.stride * 8, "offset of a whole word");
        let entry = self.entry_mut(index)?;
        // SAFETY: in bounds and aligned as just checked; nothing else in this process refers to it while `self` is
        // borrowed.
        Ok(unsafe { AtomicU64::from_ptr(entry.add(offset / 8)) })
    }

    fn half(&mut self, index: u32, offset: usize) -> io::Result<&AtomicU32> {
        assert!(offset.is_multiple_of(4) && offset < self.stride * 8, "offset of half a word");
        let entry = self.entry_mut(index)?;
        // SAFETY: as above.
        Ok(unsafe { AtomicU32::from_ptr(entry.cast::<u32>().add(offset / 4)) })
    }

    fn entry_mut(&mut self, index: u32) -> io::Result<*mut u64> {
        self.entry(index).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{index} is beyond {}", self.entries),
            )
        })
    }
}

impl MappedArray<[u32; 2], ReadWrite> {
    /// Stores one number of a pair at once. Programs may be reading the other one.
    pub(crate) fn store_in_pair(&mut self, number: u32, value: u32) -> io::Result<()> {
        self.half(number / 2, number as usize % 2 * 4)?.store(value, Ordering::Relaxed);
        Ok(())
    }
}

impl MappedArray<u64, ReadWrite> {
    /// Sets bits of entry `index`, before all writes after it that other methods make at once. Returns the entry before.
    pub(crate) fn set_bits(&mut self, index: u32, bits: u64) -> io::Result<u64> {
        let word = self.word(index, 0)?;
        let before = word.load(Ordering::Relaxed);
        // Most bits are set already. Without a write other CPUs keep the cache line.
        if before & bits == bits {
            return Ok(before);
        }
        Ok(word.fetch_or(bits, Ordering::SeqCst))
    }

    /// Clears all other bits of entry `index`.
    pub(crate) fn keep_bits(&mut self, index: u32, bits: u64) -> io::Result<()> {
        let word = self.word(index, 0)?;
        if word.load(Ordering::Relaxed) & !bits != 0 {
            word.fetch_and(bits, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl MappedArray<u32, ReadWrite> {
    /// Stores entry `index` at once, after all writes before it.
    pub(crate) fn store(&mut self, index: u32, value: u32) -> io::Result<()> {
        self.half(index, 0)?.store(value, Ordering::SeqCst);
        Ok(())
    }
}

impl<T, A> Drop for MappedArray<T, A> {
    fn drop(&mut self) {
        let bytes = self.bytes();
        // SAFETY: mapped by `open_beginning` with this length. A failure leaves a mapping until exit.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), bytes) };
    }
}
