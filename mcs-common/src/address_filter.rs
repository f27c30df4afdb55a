//! The address filter: whether an address may be a VIP, and whether it may be a backend. It is in the map `hints`,
//! which the programs ask first. They are done with most addresses then.
//!
//! The map has two bits for each bucket of addresses. A set bit may be false and costs a look-up. A bit that
//! is not set is never false: the agent sets the bits of an address before it writes the address elsewhere,
//! and clears those of which no map, socket and flow has an address.

use core::ops::{BitOr, RangeInclusive};

use crate::Address;

/// Buckets of one 64-bit word.
pub const BUCKETS_PER_WORD: u32 = 32;

/// The kinds of address that an address may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressKinds(u64);

impl AddressKinds {
    /// Neither a VIP nor a backend.
    pub const NONE: Self = Self(0);
    /// A VIP, whatever its mode is.
    pub const VIP: Self = Self(1);
    /// A backend, or one that sockets or flows still have.
    pub const BACKEND: Self = Self(2);
    /// Anything: nobody knows.
    pub const ANY: Self = Self(3);

    /// Whether the address may be in `vips`.
    #[inline(always)]
    #[must_use]
    pub const fn may_be_vip(self) -> bool {
        self.0 & Self::VIP.0 != 0
    }

    /// Whether a socket or flow may have the address as its backend.
    #[inline(always)]
    #[must_use]
    pub const fn may_be_backend(self) -> bool {
        self.0 & Self::BACKEND.0 != 0
    }

    /// Whether these kinds include the others.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// A word whose buckets all have these kinds.
    #[must_use]
    pub const fn everywhere(self) -> u64 {
        // Each pair of bits is 01.
        self.0 * (u64::MAX / 3)
    }

    /// How many buckets of a word have one of these kinds.
    #[must_use]
    pub const fn count_in(self, word: u64) -> u32 {
        let found = word & self.everywhere();
        ((found | found >> 1) & Self::VIP.everywhere()).count_ones()
    }
}

impl BitOr for AddressKinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A bucket of the map `hints`. All addresses in it have the same bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FilterBucket(u32);

impl FilterBucket {
    /// The bucket of an address, in a map with `buckets` buckets.
    #[inline(always)]
    #[must_use]
    pub fn of(address: &Address, buckets: u32) -> Self {
        Self::of_hash(hash(address), buckets)
    }

    #[inline(always)]
    fn of_hash(hash: u32, buckets: u32) -> Self {
        Self(((u64::from(hash) * u64::from(buckets)) >> 32) as u32)
    }

    /// The index of the word that has the bucket's bits.
    #[inline(always)]
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0 / BUCKETS_PER_WORD
    }

    /// What the bucket's bits in its word say.
    #[inline(always)]
    #[must_use]
    pub const fn kinds(self, word: u64) -> AddressKinds {
        AddressKinds((word >> self.shift()) & AddressKinds::ANY.0)
    }

    /// The bits of these kinds in the word of this bucket.
    #[must_use]
    pub const fn bits(self, kinds: AddressKinds) -> u64 {
        kinds.0 << self.shift()
    }

    #[inline(always)]
    const fn shift(self) -> u32 {
        self.0 % BUCKETS_PER_WORD * 2
    }

    /// Every bucket of a word.
    pub fn of_word(word: u32) -> impl Iterator<Item = Self> {
        let first = word * BUCKETS_PER_WORD;
        (first..first + BUCKETS_PER_WORD).map(Self)
    }

    /// The buckets, in a map with `to` of them, of all addresses that this bucket has in a map with `from`.
    #[must_use]
    pub fn moved(self, from: u32, to: u32) -> RangeInclusive<u32> {
        // The hashes of a bucket are consecutive.
        let first = |bucket: u32| (u64::from(bucket) << 32).div_ceil(u64::from(from.max(1)));
        let (low, high) = (first(self.0), first(self.0 + 1) - 1);
        let of = |hash: u64| Self::of_hash(u32::try_from(hash).unwrap_or(u32::MAX), to).0;
        of(low)..=of(high)
    }
}

impl From<u32> for FilterBucket {
    fn from(bucket: u32) -> Self {
        Self(bucket)
    }
}

/// Multiplicative hashing (Knuth, The Art of Computer Programming, 6.4) by 2^64 divided by the golden ratio.
///
/// The last bytes of the network and of the host differ most, and both are the most significant of their word.
/// They must not meet: many addresses would have the same exclusive or of both.
#[inline(always)]
fn hash(address: &Address) -> u32 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let [network, host]: [u64; 2] = bytemuck::cast(address.addr);
    let mixed = network.rotate_left(32) ^ host;
    (mixed.wrapping_mul(FACTOR) >> 32) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::{vec, vec::Vec};

    use proptest::prelude::*;

    use super::*;

    /// The map `hints`, as the agent writes it.
    struct Hints(Vec<u64>);

    impl Hints {
        fn new(words: u32) -> Self {
            Self(vec![0; words as usize])
        }

        fn buckets(&self) -> u32 {
            u32::try_from(self.0.len()).unwrap() * BUCKETS_PER_WORD
        }

        fn set(&mut self, address: &Address, hint: AddressKinds) {
            let bucket = FilterBucket::of(address, self.buckets());
            self.0[bucket.word() as usize] |= bucket.bits(hint);
        }

        fn get(&self, address: &Address) -> AddressKinds {
            let bucket = FilterBucket::of(address, self.buckets());
            bucket.kinds(self.0[bucket.word() as usize])
        }

        fn moved(&self, words: u32) -> Self {
            let mut moved = Self::new(words);
            for (word, bits) in (0..).zip(&self.0) {
                for bucket in FilterBucket::of_word(word) {
                    for to in bucket.moved(self.buckets(), moved.buckets()) {
                        let to = FilterBucket::from(to);
                        moved.0[to.word() as usize] |= to.bits(bucket.kinds(*bits));
                    }
                }
            }
            moved
        }

        /// The share of buckets that may be backends.
        fn density(&self) -> f64 {
            let set: u32 = self.0.iter().map(|bits| AddressKinds::BACKEND.count_in(*bits)).sum();
            f64::from(set) / f64::from(self.buckets())
        }
    }

    fn address() -> impl Strategy<Value = Address> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
        ]
    }

    fn hint() -> impl Strategy<Value = AddressKinds> {
        (1..=3_u64).prop_map(AddressKinds)
    }

    proptest! {
        #[test]
        fn no_address_is_missed(
            words in 1..5_000_u32,
            more in 1..5_000_u32,
            entries in prop::collection::vec((address(), hint()), 1..200),
        ) {
            let mut hints = Hints::new(words);
            for (address, hint) in &entries {
                hints.set(address, *hint);
            }
            let moved = hints.moved(more);
            for (address, hint) in &entries {
                prop_assert!(hints.get(address).includes(*hint));
                prop_assert!(moved.get(address).includes(*hint), "{} to {more} words", words);
            }
        }

        #[test]
        fn buckets_are_counted_by_kind(word: u64) {
            for kinds in [AddressKinds::VIP, AddressKinds::BACKEND, AddressKinds::ANY] {
                let has = |bucket: &FilterBucket| bucket.kinds(word).0 & kinds.0 != 0;
                let buckets = FilterBucket::of_word(0).filter(has).count();
                prop_assert_eq!(kinds.count_in(word) as usize, buckets, "{:?}", kinds);
            }
        }

        #[test]
        fn a_bucket_is_within_the_largest_map(address in address(), words in 1_u32..(1 << 27)) {
            let buckets: u32 = words * BUCKETS_PER_WORD;
            prop_assert!(FilterBucket::of(&address, buckets).word() < words);
        }
    }

    #[test]
    fn nothing_is_hinted_of_what_was_not_set() {
        let mut hints = Hints::new(1 << 16);
        hints.set(&Ipv4Addr::new(10, 0, 0, 1).into(), AddressKinds::VIP);
        hints.set(&Ipv4Addr::new(10, 0, 0, 2).into(), AddressKinds::BACKEND);
        assert_eq!(hints.get(&Ipv4Addr::new(10, 0, 0, 1).into()), AddressKinds::VIP);
        assert_eq!(hints.get(&Ipv4Addr::new(10, 0, 0, 2).into()), AddressKinds::BACKEND);
        assert_eq!(hints.get(&Ipv4Addr::new(10, 0, 0, 3).into()), AddressKinds::NONE);
        assert_eq!(AddressKinds::BACKEND.everywhere(), 0xaaaa_aaaa_aaaa_aaaa);
    }

    /// Pods have consecutive addresses in a few networks. Other hosts of these networks are not hinted at more often
    /// than chance would have it.
    #[test]
    fn addresses_of_the_same_networks_spread() {
        type Place = fn(u32, u32) -> Address;
        let v4: Place =
            |network, host| Ipv4Addr::from_bits(0x0a00_0000 | network << 8 | host).into();
        let v6: Place = |network, host| {
            Ipv6Addr::from_bits(0xfd << 120 | u128::from(network) << 64 | u128::from(host)).into()
        };
        for place in [v4, v6] {
            let all = |hosts: core::ops::Range<u32>| {
                (0..64).flat_map(move |network| hosts.clone().map(move |host| place(network, host)))
            };
            // 8,192 backends, in 16 buckets for each.
            let mut hints = Hints::new(1 << 12);
            all(1..129).for_each(|pod| hints.set(&pod, AddressKinds::BACKEND));
            let density = hints.density();
            assert!((0.05..0.07).contains(&density), "{density}");
            let others = all(129..255);
            let false_ones = others.filter(|other| hints.get(other).may_be_backend()).count();
            assert!(false_ones < 8_064 / 10, "{false_ones}");
            // A larger map keeps the share.
            let moved = hints.moved(3 << 12).density();
            assert!(moved < density * 1.7, "{moved} instead of {density}");
        }
    }
}
