//! How much room the config maps have, and amounts of memory as Kubernetes writes them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Numbers of things that exist, or that the config maps have room for. The kernel allocates the
/// entries of a config map when it creates the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// VIPs. Those without a frontend are refused. An earlier agent had as many as frontends, and did not count them.
    #[serde(default)]
    pub vips: u32,
    /// Frontends.
    pub frontends: u32,
    /// Slots of all frontends: one for each backend, or several.
    pub endpoints: u32,
    /// Source clusters.
    pub clusters: u32,
    /// ServiceImports that have frontends. An earlier agent did not count them.
    #[serde(default)]
    pub imports: u32,
}

/// Up to this number, a capacity grows by doubling and has a spare entry for every endpoint.
const FINE: u32 = 65_536;
/// Names that `services` has spare room for, or a 16th of all.
const SPARE_NAMES: u32 = 64;

impl Default for Capacity {
    /// The capacity of the first maps. They grow later.
    fn default() -> Self {
        Self { vips: 1_024, frontends: 1_024, endpoints: 4_096, clusters: 64, imports: 1_024 }
    }
}

impl Capacity {
    /// The limit of 32-bit indices.
    pub const MOST: Self = Self {
        vips: u32::MAX / 4,
        frontends: u32::MAX / 4,
        endpoints: u32::MAX / 4,
        clusters: u32::MAX / 4,
        imports: u32::MAX / 4,
    };
    /// Zero of everything.
    pub const NONE: Self = Self { vips: 0, frontends: 0, endpoints: 0, clusters: 0, imports: 0 };

    /// Entries of `states`. Index 0 is never used.
    pub const fn state_entries(self) -> u32 {
        self.frontends.saturating_add(1)
    }

    /// Entries of `backends`. The spare ones let a frontend replace its backends while the old ones are
    /// still in use: up to 65,536 or a 16th of all. Id 0 is never used.
    pub const fn backend_entries(self) -> u32 {
        self.endpoints.saturating_add(self.spare()).saturating_add(1)
    }

    /// Slots of all blocks and of one new block, times two because blocks are contiguous.
    pub const fn slot_entries(self) -> u32 {
        self.endpoints.saturating_add(self.spare()).saturating_mul(2)
    }

    /// The backends that a frontend can replace at once while the maps are full. A larger change needs
    /// larger maps. It waits if the maps may not grow.
    const fn spare(self) -> u32 {
        spare(self.endpoints, FINE)
    }

    /// The inverse of [`Capacity::slot_entries`].
    pub const fn endpoints_of(slot_entries: u32) -> u32 {
        without_spare(slot_entries / 2, FINE)
    }

    /// Buckets of `hints`: enough that few addresses share one. A pod is often the endpoint of several ports.
    ///
    /// The number is a power of two: larger maps take over all hints, and a bucket then becomes whole buckets. With any other
    /// number each growth would set parts of buckets, and maps that grow often would hint at every address.
    pub const fn hint_buckets(self) -> u32 {
        let few_share = self.vips.saturating_add(self.backend_entries()).saturating_mul(8);
        match few_share.checked_next_power_of_two() {
            Some(buckets) => buckets,
            None => 1 << 31,
        }
    }

    /// Entries of `services`. The spare ones let frontends go to other imports while the old entries are still in use.
    /// Index 0 is never used.
    pub const fn service_entries(self) -> u32 {
        self.imports.saturating_add(spare(self.imports, SPARE_NAMES)).saturating_add(1)
    }

    /// The inverse of [`Capacity::service_entries`]. Maps of another version may have a number of entries that no
    /// capacity has. The result is then the capacity of other maps, and the agent makes these anew.
    pub const fn imports_of(service_entries: u32) -> u32 {
        without_spare(service_entries.saturating_sub(1), SPARE_NAMES)
    }

    /// Entries of `clusters`. Every cluster can be replaced while the old entries are still in use.
    /// Index 0 is never used.
    pub const fn cluster_entries(self) -> u32 {
        self.clusters.saturating_mul(2).saturating_add(1)
    }

    /// Whether `need` fits.
    pub fn holds(self, need: Self) -> bool {
        self.at_most(need) == need
    }

    /// The larger of each number.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        self.with(other, u32::max)
    }

    /// The smaller of each number.
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        self.with(other, u32::min)
    }

    /// Grows each number that is less than `need`: up to 65,536 to the next power of two, beyond that to
    /// the next 16th of a power of two and by a quarter at least. The result is at most `bound`, but
    /// never less than before.
    #[must_use]
    pub fn grown(self, need: Self, bound: Self) -> Self {
        self.with(need, |have, need| {
            let power = need.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
            let step = if power > FINE { power / 32 } else { power };
            let least = if have > FINE { have.saturating_add(have / 4) } else { have };
            if have < need { need.div_ceil(step).saturating_mul(step).max(least) } else { have }
        })
        .at_most(bound.at_least(self))
    }

    /// A 16th more of each number. Maps grow when they have no room for that, before they are full.
    #[must_use]
    pub fn with_headroom(self) -> Self {
        self.with(self, |count, _| count.saturating_add(count / 16))
    }

    fn with(self, other: Self, of: fn(u32, u32) -> u32) -> Self {
        Self {
            vips: of(self.vips, other.vips),
            frontends: of(self.frontends, other.frontends),
            endpoints: of(self.endpoints, other.endpoints),
            clusters: of(self.clusters, other.clusters),
            imports: of(self.imports, other.imports),
        }
    }
}

/// Spare entries for `count` entries: a 16th of them, at least `least`, and at most as many as `count`.
const fn spare(count: u32, least: u32) -> u32 {
    let sixteenth = count / 16;
    let spare = if sixteenth > least { sixteenth } else { least };
    if spare < count { spare } else { count }
}

/// The number of entries that make `total` with their [`spare`] ones.
const fn without_spare(total: u32, least: u32) -> u32 {
    if total <= 2 * least {
        return total / 2;
    }
    let few = total - least;
    if few / 16 <= least { few } else { total - total / 17 }
}

/// An amount of memory in bytes. Displays as a number with the largest of Ki, Mi and Gi that divides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(pub u64);

/// The text is no amount of memory.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("write it as a number of bytes, or with Ki, Mi or Gi: 256Mi")]
pub struct MemoryError;

const UNITS: [(&str, u32); 3] = [("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl FromStr for Memory {
    type Err = MemoryError;

    fn from_str(text: &str) -> Result<Self, MemoryError> {
        let unit = UNITS.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
        let (number, bits) = unit.unwrap_or((text, 0));
        let number: u64 = number.parse().map_err(|_| MemoryError)?;
        number.checked_mul(1 << bits).map(Self).ok_or(MemoryError)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, bits)| self.0 > 0 && self.0.trailing_zeros() >= *bits);
        match unit {
            Some((unit, bits)) => write!(f, "{}{unit}", self.0 >> bits),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use mcs_common::{AddressKinds, FilterBucket};

    use super::*;

    const fn capacity(frontends: u32, endpoints: u32, clusters: u32) -> Capacity {
        Capacity { vips: frontends, frontends, endpoints, clusters, imports: 0 }
    }

    #[test]
    fn a_capacity_doubles_up_to_the_bound() {
        let bound = capacity(100, 1000, 10);
        let have = capacity(8, 16, 4);
        for (need, grown) in [
            (capacity(8, 16, 4), have),
            (capacity(9, 16, 0), capacity(16, 16, 4)),
            (capacity(0, 100, 5), capacity(8, 128, 8)),
            (capacity(0, 3, 0), have),
            (capacity(99, 999, 9), bound),
            (capacity(101, 9999, 99), bound),
        ] {
            assert_eq!(have.grown(need, bound), grown, "{need:?}");
        }
        assert_eq!(have.grown(capacity(9, 9, 9), capacity(1, 1, 1)), have, "never less");
    }

    /// Maps that grow by little and often take over their hints each time.
    #[test]
    fn hints_stay_few_through_many_growths() {
        const BACKEND: AddressKinds = AddressKinds::BACKEND;
        let words = |capacity: Capacity| vec![0_u64; (capacity.hint_buckets() / 32) as usize];
        let buckets = |hints: &[u64]| u32::try_from(hints.len()).unwrap() * 32;
        let set = |hints: &mut [u64], bucket: FilterBucket| {
            hints[bucket.word() as usize] |= bucket.bits(BACKEND);
        };
        let hinted = |hints: &[u64]| -> Vec<FilterBucket> {
            let all = (0..).zip(hints).flat_map(|(word, bits)| {
                FilterBucket::of_word(word).filter(|bucket| bucket.kinds(*bits).may_be_backend())
            });
            all.collect()
        };
        let (mut capacity, mut known) = (capacity(16_384, 1024, 8), 0);
        let mut hints = words(capacity);
        while known < 150_000 {
            let more = known + known / 20 + 100;
            let need = Capacity { endpoints: more, ..capacity }.with_headroom();
            let grown = capacity.grown(need, Capacity { endpoints: 1 << 20, ..capacity });
            if grown != capacity {
                let mut larger = words(grown);
                for bucket in hinted(&hints) {
                    let moved = bucket.moved(buckets(&hints), buckets(&larger));
                    moved.for_each(|bucket| set(&mut larger, bucket.into()));
                }
                (capacity, hints) = (grown, larger);
            }
            for pod in known..more {
                let address = Ipv4Addr::from_bits(0x0a00_0000 | pod).into();
                let bucket = FilterBucket::of(&address, buckets(&hints));
                set(&mut hints, bucket);
            }
            known = more;
        }
        let share = hinted(&hints).len() * 100 / buckets(&hints) as usize;
        assert!(share < 30, "{share} % of all addresses may be backends");
    }

    #[test]
    fn the_slots_give_the_endpoints() {
        let few = [0, 1, 4096, FINE - 1, FINE, FINE + 1, 2 * FINE, 16 * FINE - 1, 16 * FINE];
        let many = (16 * FINE..16 * FINE + 100).chain(3_000_000..3_000_100).chain([1 << 28]);
        for endpoints in few.into_iter().chain(many) {
            let capacity = capacity(0, endpoints, 0);
            assert_eq!(Capacity::endpoints_of(capacity.slot_entries()), endpoints);
            assert!(capacity.backend_entries() > endpoints.saturating_add(endpoints.min(FINE)));
        }
    }

    #[test]
    fn the_names_give_the_imports() {
        let entries = |imports| Capacity { imports, ..Capacity::NONE }.service_entries();
        for imports in (0..20_000).chain(1_000_000..1_000_100) {
            assert_eq!(Capacity::imports_of(entries(imports)), imports);
            assert!(entries(imports) > imports + imports.min(SPARE_NAMES), "{imports}");
        }
        assert_eq!(entries(16_384), 16_384 + 1024 + 1);
        // The first maps of a version that had two names for each frontend are adopted.
        assert_eq!(entries(Capacity::imports_of(2 * 1024 + 1)), 2 * 1024 + 1);
    }

    #[test]
    fn memory_is_written_as_kubernetes_does() {
        for (text, bytes) in [("0", 0), ("100", 100), ("1Ki", 1024), ("256Mi", 256 << 20)] {
            let memory: Memory = text.parse().unwrap();
            assert_eq!((memory.0, memory.to_string()), (bytes, text.to_owned()));
        }
        assert_eq!("2048Mi".parse::<Memory>().unwrap().to_string(), "2Gi");
        for wrong in ["", "Mi", "1.5Gi", "-1", "256M", "99999999999Gi"] {
            assert_eq!(wrong.parse::<Memory>(), Err(MemoryError), "{wrong}");
        }
    }
}
