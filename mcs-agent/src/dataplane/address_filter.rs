//! The address filter, in the map `hints`: it tells the programs which addresses may be VIPs or backends.

use std::{io, path::Path};

use mcs_common::{Address, AddressKinds, BUCKETS_PER_WORD, FilterBucket, maps};

use crate::{
    bpf::{Access, MappedArray, ReadOnly, ReadWrite},
    reconcile::MapError,
};

/// A pinned address filter.
#[derive(Debug)]
pub struct AddressFilter<A> {
    words: MappedArray<u64, A>,
}

/// The address filter that an earlier agent left. Sockets and flows may have backends that no config map has any more.
#[derive(Debug)]
pub enum FormerFilter {
    /// No earlier agent has left anything.
    None,
    /// An earlier agent has left sockets or flows, and no filter that is complete.
    Unknown,
    /// This one is complete.
    Known(AddressFilter<ReadOnly>),
}

impl FormerFilter {
    /// Opens the pinned filter, which the latest agent kept complete. It is unknown if that fails.
    pub fn open(pin: &Path) -> Self {
        AddressFilter::open(pin).map_or(Self::Unknown, Self::Known)
    }
}

impl<A: Access> AddressFilter<A> {
    pub(super) fn open(pin: &Path) -> Result<Self, MapError> {
        let words = MappedArray::open(pin)
            .map_err(|error| MapError::reading(maps::HINTS, "the pin", error))?;
        Ok(Self { words })
    }

    pub(super) fn get(&self, address: &Address) -> AddressKinds {
        let bucket = FilterBucket::of(address, self.buckets());
        self.words.read(bucket.word()).map_or(AddressKinds::ANY, |word| bucket.kinds(word))
    }

    const fn buckets(&self) -> u32 {
        self.words.entries() * BUCKETS_PER_WORD
    }
}

impl AddressFilter<ReadWrite> {
    /// Notes that an address may be of these kinds, before the address is written elsewhere.
    pub(super) fn set(&mut self, address: &Address, kinds: AddressKinds) -> io::Result<()> {
        let bucket = FilterBucket::of(address, self.buckets());
        self.words.set_bits(bucket.word(), bucket.bits(kinds))
    }

    /// Sets bits that another process has cleared, perhaps with those of former backends.
    pub(super) fn repair(&mut self, address: &Address, kinds: AddressKinds) -> io::Result<()> {
        // Otherwise every address counts as a backend since the first repair, or bits of VIPs alone were cleared.
        if !self.get(address).may_be_backend() {
            self.set_everywhere(AddressKinds::BACKEND)?;
        }
        self.set(address, kinds)
    }

    fn set_everywhere(&mut self, kinds: AddressKinds) -> io::Result<()> {
        let bits = kinds.everywhere();
        (0..self.words.entries()).try_for_each(|word| self.words.set_bits(word, bits))
    }

    /// Sets the bits of backends that another filter has.
    pub(super) fn carry_over(&mut self, former: &FormerFilter) -> io::Result<()> {
        match former {
            FormerFilter::None => Ok(()),
            FormerFilter::Unknown => self.set_everywhere(AddressKinds::BACKEND),
            FormerFilter::Known(former) => self.carry(former),
        }
    }

    fn carry(&mut self, former: &AddressFilter<ReadOnly>) -> io::Result<()> {
        let (from, to) = (former.buckets(), self.buckets());
        for word in 0..former.words.entries() {
            let Some(bits) = former.words.read(word).filter(|bits| *bits != 0) else { continue };
            let is_backend = |bucket: &FilterBucket| bucket.kinds(bits).may_be_backend();
            for bucket in FilterBucket::of_word(word).filter(is_backend) {
                for bucket in bucket.moved(from, to).map(FilterBucket::from) {
                    self.words.set_bits(bucket.word(), bucket.bits(AddressKinds::BACKEND))?;
                }
            }
        }
        Ok(())
    }
}
