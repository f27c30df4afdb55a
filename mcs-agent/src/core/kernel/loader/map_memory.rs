//! The memory that the config maps take in the kernel.

use mcs_common::maps::Place;

use super::layout::Sizes;
use crate::core::model::{Capacity, Memory};

/// The memory of config maps with this capacity. The few entries that are never used do not count.
pub fn config_memory(capacity: Capacity) -> Memory {
    Memory(kernel_bytes(capacity) - kernel_bytes(Capacity::NONE))
}

/// VIPs that the maps can hold beyond one for each frontend: those whose frontends do not fit are refused. Their entries come
/// on top of `--max-memory`, 104 bytes each, and only when they are needed.
const REFUSED_VIPS: u32 = 65_536;

/// The largest capacity whose config maps take at most `memory`, but for 65,536 VIPs more than frontends. Clusters get a 64th of it, frontends
/// three eighths, each with a VIP, and endpoints the rest, so that none takes the room of another.
pub fn capacity_within(memory: Memory) -> Capacity {
    let clusters = memory.0 / 64;
    let frontends = memory.0 / 8 * 3;
    let endpoints = memory.0 - clusters - frontends;
    // Each frontend may have an import of its own.
    let frontend =
        config_memory(Capacity { vips: 1, frontends: 1, imports: 1, ..Capacity::NONE }).0;
    let cluster = config_memory(Capacity { clusters: 1, ..Capacity::NONE }).0;
    // The maps have one spare place for each endpoint.
    let endpoint = config_memory(Capacity { endpoints: 1, ..Capacity::NONE }).0 / 2;
    let count = |share: u64, each: u64| u32::try_from(share / each).unwrap_or(u32::MAX / 4);
    let frontends = count(frontends, frontend);
    Capacity {
        vips: frontends.saturating_add(REFUSED_VIPS),
        frontends,
        endpoints: Capacity::endpoints_of(count(endpoints, endpoint).saturating_mul(2)),
        clusters: count(clusters, cluster),
        imports: frontends,
    }
}

fn kernel_bytes(capacity: Capacity) -> u64 {
    Sizes::of(capacity).layouts(Place::Config).map(|map| map.kernel_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_takes_42_bytes_where_there_are_many() {
        let only = |endpoints| Capacity { endpoints, ..Capacity::NONE };
        let bytes =
            |endpoints| config_memory(Capacity::NONE.grown(only(endpoints), Capacity::MOST)).0;
        assert!(bytes(3_000_000) <= 128 << 20, "{}", bytes(3_000_000));
        assert!(bytes(3_000_000) / 3_000_000 <= 42);
        assert!(bytes(1_000_000) / 1_000_000 <= 45);
        assert!(bytes(65_536) / 65_536 <= 80);
    }

    #[test]
    fn the_capacity_uses_most_of_its_memory() {
        for memory in ["64Ki", "16Mi", "256Mi", "3Gi"] {
            let memory: Memory = memory.parse().unwrap();
            let capacity = capacity_within(memory);
            let served = config_memory(Capacity { vips: capacity.frontends, ..capacity });
            assert!(served <= memory, "{memory}");
            assert!(served.0 > memory.0 / 10 * 9, "{memory}");
            assert_eq!(config_memory(capacity).0 - served.0, 104 * u64::from(REFUSED_VIPS));
        }
        let large = Capacity {
            vips: 100_000,
            frontends: 100_000,
            endpoints: 1_500_000,
            clusters: 10_000,
            imports: 100_000,
        };
        assert!(capacity_within(Memory(256 << 20)).holds(large));
    }

    /// Operators size `--max-memory` by these numbers.
    #[test]
    fn the_default_limit_has_room_for_millions_of_endpoints() {
        let expected = Capacity {
            vips: 193_583 + 65_536,
            frontends: 193_583,
            endpoints: 3_848_891,
            clusters: 32_768,
            imports: 193_583,
        };
        assert_eq!(capacity_within(Memory(256 << 20)), expected);
        assert_eq!(config_memory(Capacity::default()), Memory(745_472));
    }
}
