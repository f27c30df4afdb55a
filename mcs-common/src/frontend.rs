//! Frontends with their slots and backends, and VIPs: keys of the maps `vips` and `frontends`, values of `states`,
//! `slots` and `backends`.

use bytemuck::{Pod, Zeroable};
use core::mem::offset_of;

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
    /// Index into `figures`. The agent keeps it apart from its model of the maps.
    pub row: u32,
}

const _: () = {
    assert!(size_of::<FrontendState>() == 48);
    assert!(offset_of!(FrontendState, extent) == 24);
};
crate::pod!(FrontendState);

/// Values of [`BackendRecord::state`].
pub struct BackendState;

impl BackendState {
    /// The id is not in use.
    pub const FREE: u8 = 0;
    /// Slots of its frontend name it.
    pub const ACTIVE: u8 = 1;
    /// No slot names it any more. Its TCP connections continue, and it gets no new ones.
    pub const RETIRED: u8 = 2;
    /// No slot names it any more, but it still serves: UDP sockets and flows stay with it, and it gets no
    /// new ones.
    pub const KEPT: u8 = 3;
}

/// Value of the array `backends`, at a backend id. Id 0 is never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct BackendRecord {
    /// The pod's address.
    pub addr: Address,
    /// The port in host order.
    pub port: u16,
    /// One of [`BackendState`].
    pub state: u8,
    /// The column of the source cluster in [`FigureRow::counts`](crate::FigureRow::counts).
    pub column: u8,
    /// Increases each time the id is assigned again, so that remembered ids become invalid. It shares a
    /// 64-bit word with the state: a reader must not see the state of one use and the generation of
    /// another.
    pub generation: u32,
    /// Index into `states`: the only frontend this id serves.
    pub frontend: u32,
    /// Index into `clusters`.
    pub cluster: u32,
}

const _: () = {
    assert!(size_of::<BackendRecord>() == 32);
    assert!(offset_of!(BackendRecord, state) / 8 == offset_of!(BackendRecord, generation) / 8);
};
crate::pod!(BackendRecord);

impl BackendRecord {
    /// Whether `remembered` still names this backend, as an active or kept backend of `frontend`.
    #[inline(always)]
    #[must_use]
    pub fn still_serves(&self, frontend: u32, remembered: BackendRef) -> bool {
        (self.state == BackendState::ACTIVE || self.state == BackendState::KEPT)
            && self.frontend == frontend
            && self.generation == remembered.generation
    }
}

/// Value of the array `slots`: the backend ids of two slots, the even one first. The kernel rounds array
/// values up to 8 bytes (kernel/bpf/arraymap.c), so one id for each value would waste half.
pub type SlotPair = [u32; 2];

/// A remembered choice of a backend. It names no slot, since slots move. It is one 64-bit word, so that
/// one store changes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct BackendRef {
    /// Index into `backends`; 0 names none.
    pub id: u32,
    /// The [`BackendRecord::generation`] at the time of the choice.
    pub generation: u32,
}

const _: () = assert!(size_of::<BackendRef>() == 8);
crate::pod!(BackendRef);

/// Values of the map `vips`: what the programs do with packets and connections to a VIP.
///
/// A packet of a flow goes on to its backend whatever the mode is. The programs treat a mode that they do
/// not know as [`VipMode::HANDED_BACK`].
pub struct VipMode;

impl VipMode {
    /// Its frontends serve it.
    pub const SERVED: u32 = 0;
    /// Others serve the address now: what belongs to no flow passes unchanged.
    pub const HANDED_BACK: u32 = 1;
    /// Nobody serves the address: what belongs to no flow is refused.
    pub const GONE: u32 = 2;

    /// Whether what belongs to no flow passes unchanged.
    #[inline(always)]
    #[must_use]
    pub const fn passes(mode: u32) -> bool {
        mode != Self::SERVED && mode != Self::GONE
    }
}
