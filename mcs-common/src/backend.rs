//! Backends and slots: values of the maps `backends` and `slots`.

use core::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use crate::Address;

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
    /// new ones. An earlier version takes this for a retired backend.
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
    /// The column of the source cluster in [`FigureRow::counts`](crate::FigureRow::counts). As with
    /// [`FrontendState::row`](crate::FrontendState::row), versions without figures write 0.
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
