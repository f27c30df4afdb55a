//! The map `hints`, which tells the programs which addresses may be VIPs or backends.

use std::{io, path::Path};

use mcs_common::{Address, HINTS_PER_WORD, Hint, HintBucket, maps};

use crate::{
    bpf::{Access, MappedArray, ReadOnly, ReadWrite},
    reconcile::MapError,
};

/// A pinned map of hints.
#[derive(Debug)]
pub struct HintMap<A> {
    words: MappedArray<u64, A>,
}

/// The hints that an earlier agent left. Sockets and flows may have backends that no config map has any more.
#[derive(Debug)]
pub enum FormerHints {
    /// No earlier agent has left anything.
    None,
    /// An earlier agent has left sockets or flows, and no hints that are right.
    Unknown,
    /// These are right.
    Known(HintMap<ReadOnly>),
}

impl FormerHints {
    /// Opens the pinned hints, which the latest agent kept right. Otherwise they are unknown.
    pub fn open(pin: &Path) -> Self {
        HintMap::open(pin).map_or(Self::Unknown, Self::Known)
    }
}

impl<A: Access> HintMap<A> {
    pub(super) fn open(pin: &Path) -> Result<Self, MapError> {
        let words = MappedArray::open(pin)
            .map_err(|error| MapError::reading(maps::HINTS, "the pin", error))?;
        Ok(Self { words })
    }

    pub(super) fn get(&self, address: &Address) -> Hint {
        let bucket = HintBucket::of(address, self.buckets());
        self.words.read(bucket.word()).map_or(Hint::ANY, |word| bucket.hint(word))
    }

    const fn buckets(&self) -> u32 {
        self.words.entries() * HINTS_PER_WORD
    }
}

impl HintMap<ReadWrite> {
    /// Sets a hint of an address, before the address is written elsewhere.
    pub(super) fn set(&mut self, address: &Address, hint: Hint) -> io::Result<()> {
        let bucket = HintBucket::of(address, self.buckets());
        self.words.set_bits(bucket.word(), bucket.bits(hint))
    }

    /// Sets a hint that another process has cleared, perhaps with those of former backends.
    pub(super) fn repair(&mut self, address: &Address, hint: Hint) -> io::Result<()> {
        // Otherwise every address has it since the first repair, or only hints of VIPs were cleared.
        if !self.get(address).may_be_backend() {
            self.set_everywhere(Hint::BACKEND)?;
        }
        self.set(address, hint)
    }

    fn set_everywhere(&mut self, hint: Hint) -> io::Result<()> {
        let bits = hint.everywhere();
        (0..self.words.entries()).try_for_each(|word| self.words.set_bits(word, bits))
    }

    /// Sets what is hinted of backends in another map.
    pub(super) fn carry_over(&mut self, former: &FormerHints) -> io::Result<()> {
        match former {
            FormerHints::None => Ok(()),
            FormerHints::Unknown => self.set_everywhere(Hint::BACKEND),
            FormerHints::Known(former) => self.carry(former),
        }
    }

    fn carry(&mut self, former: &HintMap<ReadOnly>) -> io::Result<()> {
        let (from, to) = (former.buckets(), self.buckets());
        for word in 0..former.words.entries() {
            let Some(bits) = former.words.read(word).filter(|bits| *bits != 0) else { continue };
            let is_backend = |bucket: &HintBucket| bucket.hint(bits).may_be_backend();
            for bucket in HintBucket::of_word(word).filter(is_backend) {
                for bucket in bucket.moved(from, to).map(HintBucket::from) {
                    self.words.set_bits(bucket.word(), bucket.bits(Hint::BACKEND))?;
                }
            }
        }
        Ok(())
    }
}
