use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef};

/// Key of the LRU map `affinity`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct AffinityKey {
    /// The client: the cookie of its network namespace, since a socket has no source address yet
    /// when it connects.
    pub netns_cookie: u64,
    /// Index into `states`.
    pub frontend: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<AffinityKey>() == 16);
crate::pod!(AffinityKey);

/// Key of the LRU map `client_affinity`, of the packet path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ClientKey {
    /// The client: the source of its packets.
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
    /// The backend chosen.
    pub backend: BackendRef,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the client's latest connection.
    pub last_used_ns: u64,
}

const _: () = assert!(size_of::<Affinity>() == 16);
crate::pod!(Affinity);

impl Affinity {
    /// Whether the choice still binds a client that comes at `now_ns`.
    ///
    /// Another CPU may have used it after this one read the clock: then no time has gone by.
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
            // Used by another CPU since this one read the clock.
            (used_at - 1, true),
        ];
        for (now, holds) in cases {
            assert_eq!(affinity.holds(now, 10), holds, "at {now}");
        }
    }
}
