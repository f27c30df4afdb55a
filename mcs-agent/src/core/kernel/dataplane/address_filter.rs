//! The address filter, in the map `hints`: it tells the programs which addresses may be VIPs or backends.

use std::{io, path::Path};

use mcs_common::{Address, AddressKinds, BUCKETS_PER_WORD, FilterBucket, maps};
use serde::{Deserialize, Serialize};

use crate::core::{
    kernel::bpf::{Access, MappedArray, ReadOnly, ReadWrite},
    tables::MapError,
};

/// A pinned address filter.
#[derive(Debug)]
pub struct AddressFilter<A> {
    words: MappedArray<u64, A>,
    /// Counted by [`AddressFilter::carry_over`] and then followed, since a filter can have a million words.
    density: FilterDensity,
    /// What a rebuild keeps: the bits that were set since it began.
    kept: Option<FilterWords>,
}

/// How many buckets of a filter are set. Part of `mcs-agent status -o json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FilterDensity {
    /// All buckets.
    pub buckets: u32,
    /// Buckets with an address that may be a VIP or a backend.
    pub set: u32,
    /// Buckets with an address that may be a backend.
    pub backends: u32,
}

impl FilterDensity {
    fn of(words: impl Iterator<Item = u64>) -> Self {
        let mut density = Self::default();
        for word in words {
            density.buckets += BUCKETS_PER_WORD;
            density.change(0, word);
        }
        density
    }

    /// Notes that bits of a word were set.
    const fn change(&mut self, before: u64, after: u64) {
        self.set += AddressKinds::ANY.count_in(after) - AddressKinds::ANY.count_in(before);
        self.backends +=
            AddressKinds::BACKEND.count_in(after) - AddressKinds::BACKEND.count_in(before);
    }

    /// Whether most of the set buckets are those of addresses that have gone, and traffic pays for them: `needed` addresses
    /// set that many buckets at most. What one bucket in 64 costs cannot be measured.
    pub fn is_dense(self, needed: u32) -> bool {
        self.set > needed.saturating_mul(2).max(self.buckets / 64)
    }

    /// The share of buckets, `set` or `backends`.
    pub fn share(self, buckets: u32) -> f64 {
        f64::from(buckets) / f64::from(self.buckets.max(1))
    }
}

/// The words of a filter that is in no map.
#[derive(Clone, Debug)]
pub struct FilterWords(Vec<u64>);

impl FilterWords {
    /// An empty filter.
    pub fn new(words: u32) -> Self {
        Self(vec![0; words as usize])
    }

    /// Notes that an address may be of these kinds.
    pub fn set(&mut self, address: &Address, kinds: AddressKinds) {
        let bucket = self.bucket(address);
        if let Some(word) = self.0.get_mut(bucket.word() as usize) {
            *word |= bucket.bits(kinds);
        }
    }

    /// What an address may be.
    pub fn get(&self, address: &Address) -> AddressKinds {
        let bucket = self.bucket(address);
        self.0.get(bucket.word() as usize).map_or(AddressKinds::ANY, |word| bucket.kinds(*word))
    }

    /// How many buckets are set.
    pub fn density(&self) -> FilterDensity {
        FilterDensity::of(self.0.iter().copied())
    }

    fn bucket(&self, address: &Address) -> FilterBucket {
        let words = u32::try_from(self.0.len()).unwrap_or(u32::MAX / BUCKETS_PER_WORD);
        FilterBucket::of(address, words * BUCKETS_PER_WORD)
    }
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
        Ok(Self { words, density: FilterDensity::default(), kept: None })
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
        if let Some(kept) = &mut self.kept {
            kept.set(address, kinds);
        }
        let bucket = FilterBucket::of(address, self.buckets());
        self.set_bits(bucket.word(), bucket.bits(kinds))
    }

    fn set_bits(&mut self, word: u32, bits: u64) -> io::Result<()> {
        let before = self.words.set_bits(word, bits)?;
        self.density.change(before, before | bits);
        Ok(())
    }

    /// How many buckets are set.
    pub(super) const fn density(&self) -> FilterDensity {
        self.density
    }

    /// Begins to note what is set.
    pub(super) fn begin_rebuild(&mut self) {
        self.kept = Some(FilterWords::new(self.words.entries()));
    }

    /// Clears the bits of all addresses but these and those that were set since the rebuild began. Returns whether one had
    /// begun.
    pub(super) fn finish_rebuild(&mut self, in_use: &[Address]) -> io::Result<bool> {
        let Some(mut kept) = self.kept.take() else { return Ok(false) };
        for address in in_use {
            kept.set(address, self.get(address));
        }
        for (word, bits) in (0..).zip(kept.0) {
            self.words.keep_bits(word, bits)?;
        }
        self.count();
        Ok(true)
    }

    fn count(&mut self) {
        let words = (0..self.words.entries()).filter_map(|word| self.words.read(word));
        self.density = FilterDensity::of(words);
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
        (0..self.words.entries()).try_for_each(|word| self.set_bits(word, bits))
    }

    /// Sets the bits of backends that another filter has.
    pub(super) fn carry_over(&mut self, former: &FormerFilter) -> io::Result<()> {
        self.count();
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
                    self.set_bits(bucket.word(), bucket.bits(AddressKinds::BACKEND))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_dense_by_buckets_that_nobody_needs() {
        let density = |set| FilterDensity { buckets: 6_400, set, backends: 0 };
        for (set, needed, is_dense) in [
            (0, 0, false),
            (100, 0, false),
            (101, 0, true),
            (101, 51, false),
            (2_000, 1_000, false),
            (2_001, 1_000, true),
            (6_400, u32::MAX, false),
        ] {
            assert_eq!(density(set).is_dense(needed), is_dense, "{set} of which {needed}");
        }
    }

    #[test]
    fn what_is_set_counts_once() {
        let (vip, backend) = (AddressKinds::VIP, AddressKinds::BACKEND);
        let [one, other] = [1, 2].map(Address::from_v4_word);
        let mut words = FilterWords::new(1 << 10);
        for (address, kinds) in [(&one, vip), (&one, backend), (&other, vip), (&other, vip)] {
            words.set(address, kinds);
        }
        assert_eq!(words.density(), FilterDensity { buckets: 1 << 15, set: 2, backends: 1 });
        assert_eq!((words.get(&one), words.get(&other)), (vip | backend, vip));
        let mut counted = FilterDensity { buckets: 32, ..FilterDensity::default() };
        counted.change(0, 0b0001);
        counted.change(0b0001, 0b1011);
        assert_eq!(counted, FilterDensity::of([0b1011].into_iter()));
    }
}
