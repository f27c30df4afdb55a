//! Session affinity: keys and values of the maps `affinity` and `client_affinity`.

use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef};

/// Key of the LRU map `affinity`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct AffinityKey {
    /// The client: the cookie of its network namespace (`bpf_get_netns_cookie`). A socket has no source
    /// address before it connects.
    pub netns_cookie: u64,
    /// Index into `states`.
    pub frontend: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<AffinityKey>() == 16);
crate::pod!(AffinityKey);

/// Key of the LRU map `client_affinity`, which the packet path uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ClientKey {
    /// The client: the source address of its packets.
    pub client: Address,
    /// Index into `states`.
    pub frontend: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<ClientKey>() == 24);
crate::pod!(ClientKey);

/// Value of the LRU maps `affinity` and `client_affinity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Affinity {
    /// The client's backend.
    pub backend: BackendRef,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the client's latest connection.
    pub last_used_ns: u64,
}

const _: () = assert!(size_of::<Affinity>() == 16);
crate::pod!(Affinity);

impl Affinity {
    /// Whether the entry is still valid at `now_ns`, in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// Another CPU may have used it after this CPU read the clock. The entry's age then counts as 0.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, now_ns: u64, timeout_seconds: u32) -> bool {
        now_ns.saturating_sub(self.last_used_ns) < u64::from(timeout_seconds) * 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_for_the_timeout_after_the_last_use() {
        const SECOND: u64 = 1_000_000_000;
        let used_at = 100 * SECOND;
        let affinity =
            Affinity { backend: BackendRef { id: 1, generation: 1 }, last_used_ns: used_at };
        let cases = [
            (used_at, true),
            (used_at + 10 * SECOND - 1, true),
            (used_at + 10 * SECOND, false),
            // Another CPU has used it since this CPU read the clock.
            (used_at - 1, true),
        ];
        for (now, holds) in cases {
            assert_eq!(affinity.holds(now, 10), holds, "at {now}");
        }
    }
}
