//! Frontends: keys of the map `frontends` and values of `states`.

use core::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::Address;

/// Key of the map `frontends`: the VIP, port and protocol that a client connects to.
#[derive(Clone, Copy, PartialOrd, Ord, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FrontendKey {
    /// The VIP (ClusterSetIP, KEP-1645).
    pub vip: Address,
    /// The port in host order.
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

/// A frontend's contiguous run of slots. It is read and written as one 64-bit word, and that store is the
/// commit point of every change of a backend set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Extent {
    /// Index of the first slot.
    pub block: u32,
    /// The number of slots. With 0 every client is refused.
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

/// Flag: the frontend has `sessionAffinity: ClientIP`. A client gets the same backend until it made no new
/// connection for [`FrontendState::affinity_seconds`].
pub const FRONTEND_AFFINITY_CLIENT_IP: u32 = 1;

/// Value of the array `states`, at the index that `frontends` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct FrontendState {
    /// The key that this index belongs to. A reader compares it with the key that it looked up, because
    /// the kernel may reuse an element of a hash map while a program has a pointer to it.
    pub key: FrontendKey,
    /// The frontend's slots.
    pub extent: Extent,
    /// Index into `services`.
    pub service: u32,
    /// `FRONTEND_*` bits.
    pub flags: u32,
    /// The affinity timeout in seconds; 0 without affinity.
    pub affinity_seconds: u32,
    /// Index into `figures`. The agent keeps it apart from its model of the maps: versions without figures write 0.
    pub row: u32,
    /// With this feature tests build another version of the ABI: values of config maps grow at their end.
    #[cfg(feature = "wide")]
    pub pad: [u32; 2],
}

const _: () = {
    assert!(size_of::<FrontendState>() == if cfg!(feature = "wide") { 56 } else { 48 });
    assert!(offset_of!(FrontendState, extent) == 24);
};
crate::pod!(FrontendState);
