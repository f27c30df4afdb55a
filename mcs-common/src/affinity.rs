use bytemuck::{Pod, Zeroable};

use crate::BackendRef;

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

/// Value of the LRU map `affinity`.
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
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, now_ns: u64, timeout_seconds: u32) -> bool {
        now_ns.wrapping_sub(self.last_used_ns) < u64::from(timeout_seconds) * 1_000_000_000
    }
}
