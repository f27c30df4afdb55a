use core::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// Key of the map `frontends`: what a client connects to.
#[derive(Clone, Copy, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FrontendKey {
    /// The ClusterSetIP.
    pub vip: Address,
    /// Host order.
    pub port: u16,
    /// An IP protocol number (6 TCP, 17 UDP).
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
    /// Zero. (Padding in scalars: an array of bytes is zeroed by a call in BPF.)
    pub pad2: u32,
}

const _: () = assert!(size_of::<FrontendKey>() == 24);
crate::pod!(FrontendKey);
crate::eq_by_words!(FrontendKey, 3);

impl FrontendKey {
    /// A key with its padding zeroed.
    #[inline(always)]
    #[must_use]
    pub const fn new(vip: Address, port: u16, protocol: u8) -> Self {
        Self { vip, port, protocol, pad: 0, pad2: 0 }
    }
}

/// A frontend's contiguous run of entries in the map `slots`, read and written as one 64-bit word:
/// the commit point of every change of a backend set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Extent {
    /// Index of the first slot.
    pub block: u32,
    /// Number of slots; 0 refuses every client.
    pub count: u32,
}

const _: () = assert!(size_of::<Extent>() == 8);
crate::pod!(Extent);

impl Extent {
    /// The slot indices of this extent.
    #[must_use]
    pub const fn range(&self) -> core::ops::Range<u32> {
        self.block..self.block + self.count
    }
}

/// The frontend sends a client to the same backend until [`FrontendState::affinity_seconds`] have
/// gone by without a new connection (`sessionAffinity: ClientIP`).
pub const FRONTEND_AFFINITY_CLIENT_IP: u32 = 1;

/// What fills up [`FrontendState`]. Longer in the build that stands for another version in tests: values
/// of config maps grow at their end.
#[cfg(not(feature = "wide"))]
type Rest = u32;
#[cfg(feature = "wide")]
type Rest = [u32; 3];

/// Value of the array `states`, at the index that `frontends` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FrontendState {
    /// The key this index belongs to. A reader compares it with what it looked up: an element of a
    /// hash map is reused while others still hold a pointer to it.
    pub key: FrontendKey,
    /// Where the backend ids stand.
    pub extent: Extent,
    /// Index into `services`.
    pub service: u32,
    /// `FRONTEND_*` bits.
    pub flags: u32,
    /// Seconds; 0 without affinity.
    pub affinity_seconds: u32,
    /// Zero.
    pub pad: Rest,
}

const _: () = {
    assert!(size_of::<FrontendState>() == 44 + size_of::<Rest>());
    assert!(offset_of!(FrontendState, extent) == 24);
};
crate::pod!(FrontendState);
