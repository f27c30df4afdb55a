use std::{fmt, str::FromStr};

use mcs_common::{
    Address, BackendRecord, ClusterRecord, FrontendKey, FrontendState, ServiceRecord, SlotPair,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How much there is, or is room for. Config maps are allocated whole when they are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Frontends, VIPs and ServiceImports, each.
    pub frontends: u32,
    /// Backends of all frontends together.
    pub endpoints: u32,
    /// Source clusters.
    pub clusters: u32,
}

/// Up to here a capacity doubles, and a whole set of endpoints can be replaced by another.
const FINE: u32 = 65_536;

impl Default for Capacity {
    /// What the first maps have room for: they grow with what is wanted.
    fn default() -> Self {
        Self { frontends: 1_024, endpoints: 4_096, clusters: 64 }
    }
}

impl Capacity {
    /// As much as indices of 32 bits reach.
    pub const MOST: Self =
        Self { frontends: u32::MAX / 4, endpoints: u32::MAX / 4, clusters: u32::MAX / 4 };
    /// Nothing.
    pub const NONE: Self = Self { frontends: 0, endpoints: 0, clusters: 0 };

    /// Entries of `states`: index 0 is never used.
    pub const fn state_entries(self) -> u32 {
        self.frontends.saturating_add(1)
    }

    /// Entries of `backends`: a frontend's whole set can be replaced while the old one is still in use,
    /// up to 65,536 or a 16th of all, and id 0 is never used.
    pub const fn backend_entries(self) -> u32 {
        self.endpoints.saturating_add(self.spare()).saturating_add(1)
    }

    /// Slots: a block for every frontend, and as much again since blocks are contiguous; beside them a
    /// new block for one of them.
    pub const fn slot_entries(self) -> u32 {
        self.endpoints.saturating_add(self.spare()).saturating_mul(2)
    }

    /// Backends by which a frontend can change at once while all that there is room for are in use. A
    /// larger change takes larger maps, and where there may be none it waits.
    const fn spare(self) -> u32 {
        let sixteenth = self.endpoints / 16;
        let spare = if sixteenth > FINE { sixteenth } else { FINE };
        if spare < self.endpoints { spare } else { self.endpoints }
    }

    /// The endpoints of the capacity that has so many slots.
    pub const fn endpoints_of(slot_entries: u32) -> u32 {
        let half = slot_entries / 2;
        if half <= 2 * FINE {
            return half / 2;
        }
        let few = half - FINE;
        if few / 16 <= FINE { few } else { half - half / 17 }
    }

    /// Entries of `services`: a frontend can change hands while the former name is still in use, and
    /// index 0 is never used.
    pub const fn service_entries(self) -> u32 {
        self.frontends.saturating_mul(2).saturating_add(1)
    }

    /// Entries of `clusters`: every cluster can be replaced while the former ones are still in use,
    /// and index 0 is never used.
    pub const fn cluster_entries(self) -> u32 {
        self.clusters.saturating_mul(2).saturating_add(1)
    }

    /// Whether there is room for all of `need`.
    pub fn holds(self, need: Self) -> bool {
        self.at_most(need) == need
    }

    /// The larger of each.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        self.with(other, u32::max)
    }

    /// The smaller of each.
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        self.with(other, u32::min)
    }

    /// This much, with room for `need` added in steps that leave little unused: to the next power of
    /// two up to 65,536, beyond that to the next 16th of one and by an eighth at least. Never more than
    /// `bound`.
    #[must_use]
    pub fn grown(self, need: Self, bound: Self) -> Self {
        self.with(need, |have, need| {
            let power = need.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
            let step = if power > FINE { power / 32 } else { power };
            let least = if have > FINE { have.saturating_add(have / 8) } else { have };
            if have < need { need.div_ceil(step).saturating_mul(step).max(least) } else { have }
        })
        .at_most(bound.at_least(self))
    }

    fn with(self, other: Self, of: fn(u32, u32) -> u32) -> Self {
        Self {
            frontends: of(self.frontends, other.frontends),
            endpoints: of(self.endpoints, other.endpoints),
            clusters: of(self.clusters, other.clusters),
        }
    }

    /// What the config maps take in the kernel.
    pub fn memory(self) -> Memory {
        let part = |count: u32, each: u64| u64::from(count) * each;
        Memory(
            part(self.frontends, FRONTEND)
                + part(self.backend_entries() - 1, stored::<BackendRecord>())
                + part(self.slot_entries() / 2, stored::<SlotPair>())
                + part(self.clusters, CLUSTER),
        )
    }
}

/// An element of a hash map besides its key and value, and the heads of two buckets (`htab_elem`
/// and `bucket`, kernel/bpf/hashtab.c; there are as many buckets as elements, rounded up to a power
/// of two).
const ELEMENT: u64 = 48 + 2 * 16;
/// Bytes for a frontend, its VIP and its ServiceImport.
const FRONTEND: u64 = hashed::<Address>()
    + hashed::<FrontendKey>()
    + stored::<FrontendState>()
    + 2 * stored::<ServiceRecord>();
/// Bytes for an endpoint and its part of what is spare.
const BACKEND: u64 = stored::<BackendRecord>() + stored::<SlotPair>();
/// Bytes for a source cluster.
const CLUSTER: u64 = 2 * stored::<ClusterRecord>();

/// Bytes of an entry of an array: the kernel keeps each at a multiple of 8.
const fn stored<T>() -> u64 {
    size_of::<T>().next_multiple_of(8) as u64
}

/// Bytes of an entry of a hash map with values of 4 bytes.
const fn hashed<K>() -> u64 {
    stored::<K>() + stored::<u32>() + ELEMENT
}

/// Bytes. Written as a number with Ki, Mi or Gi, or none of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(pub u64);

/// It is no amount of memory.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("write it as a number of bytes, or with Ki, Mi or Gi: 256Mi")]
pub struct MemoryError;

const UNITS: [(&str, u32); 3] = [("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl Memory {
    /// The largest capacity whose maps take no more than this: clusters get a 64th of it,
    /// frontends three eighths, and endpoints the rest. So none takes the room of another.
    pub fn capacity(self) -> Capacity {
        let count = |share: u64, each: u64| u32::try_from(share / each).unwrap_or(u32::MAX / 4);
        let clusters = self.0 / 64;
        let frontends = self.0 / 8 * 3;
        Capacity {
            frontends: count(frontends, FRONTEND),
            endpoints: Capacity::endpoints_of(
                count(self.0 - frontends - clusters, BACKEND).saturating_mul(2),
            ),
            clusters: count(clusters, CLUSTER),
        }
    }
}

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
    use super::*;

    const fn capacity(frontends: u32, endpoints: u32, clusters: u32) -> Capacity {
        Capacity { frontends, endpoints, clusters }
    }

    #[test]
    fn what_is_short_doubles_up_to_the_bound() {
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

    #[test]
    fn the_capacity_of_maps_is_known_by_their_slots() {
        let few = [0, 1, 4096, FINE - 1, FINE, FINE + 1, 2 * FINE, 16 * FINE - 1, 16 * FINE];
        let many = (16 * FINE..16 * FINE + 100).chain(3_000_000..3_000_100).chain([1 << 28]);
        for endpoints in few.into_iter().chain(many) {
            let capacity = capacity(0, endpoints, 0);
            assert_eq!(Capacity::endpoints_of(capacity.slot_entries()), endpoints);
            assert!(capacity.backend_entries() > endpoints.saturating_add(endpoints.min(FINE)));
        }
    }

    #[test]
    fn an_endpoint_takes_42_bytes_where_there_are_many() {
        let bytes =
            |endpoints| Capacity::NONE.grown(capacity(0, endpoints, 0), Capacity::MOST).memory().0;
        assert!(bytes(3_000_000) <= 128 << 20, "{}", bytes(3_000_000));
        assert!(bytes(3_000_000) / 3_000_000 <= 42);
        assert!(bytes(1_000_000) / 1_000_000 <= 45);
        assert!(bytes(65_536) / 65_536 <= 80);
    }

    #[test]
    fn what_memory_has_room_for_fits_into_it() {
        for memory in ["64Ki", "16Mi", "256Mi", "3Gi"] {
            let memory: Memory = memory.parse().unwrap();
            let capacity = memory.capacity();
            assert!(capacity.memory() <= memory, "{memory}");
            assert!(capacity.memory().0 > memory.0 / 10 * 9, "{memory}");
        }
        assert!(Memory(256 << 20).capacity().holds(capacity(100_000, 1_500_000, 10_000)));
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
