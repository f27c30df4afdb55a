//! The table of sockets that are connected to a VIP: a slot for each, without allocation.
//!
//! The kernel runs the hooks of one socket one after the other, with its lock held. So a slot has one
//! writer, except while it is free: see [`SlotConnection::cookie`].

use aya_ebpf::Global;
use mcs_common::{Connection, NO_WAY, Peer, SlotConnection, SlotPlace, TagPair};

use super::context::{HookFamily, SocketContext};
use crate::maps::{SOCKET_CONNS, SOCKET_TAGS, store};

/// The table has two to the power of this many slots.
#[unsafe(no_mangle)]
static SOCKET_SLOT_BITS: Global<u32> = Global::new(mcs_common::maps::SOCKET_SLOT_BITS);

/// The tags of a socket's pair of slots.
struct Tags {
    place: SlotPlace,
    pair: *mut TagPair,
}

impl Tags {
    #[inline(always)]
    fn of(cookie: u64) -> Option<Self> {
        let place = SlotPlace::of(cookie, SOCKET_SLOT_BITS.load());
        Some(Self { place, pair: SOCKET_TAGS.get_ptr_mut(place.pair())? })
    }

    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "the kernel aligns a map's values to 8 bytes")]
    fn read(&self) -> TagPair {
        // SAFETY: the pointer is to a value of the array, which is aligned to 8 bytes.
        bytemuck::cast(unsafe { self.pair.cast::<u64>().read_volatile() })
    }

    #[inline(always)]
    fn set(&self, way: u32, tag: u32) {
        // SAFETY: the pointer is to a value of the array, which has two tags.
        unsafe { self.pair.cast::<u32>().add(way as usize & 1).write_volatile(tag) };
    }

    #[inline(always)]
    fn connection(&self, way: u32) -> Option<*mut SlotConnection> {
        SOCKET_CONNS.get_ptr_mut(self.place.slot(way))
    }
}

/// The connection in the socket's slot.
#[inline(always)]
pub(crate) fn get<F: HookFamily>(ctx: &SocketContext<F>) -> Option<*const SlotConnection> {
    let cookie = ctx.socket_cookie();
    let tags = Tags::of(cookie)?;
    let way = tags.place.own_way(tags.read());
    if way == NO_WAY {
        return None;
    }
    let connection = tags.connection(way)?;
    // SAFETY: the pointer is to a value of the array.
    let is_own = unsafe { (&raw const (*connection).cookie).read_volatile() == cookie };
    is_own.then_some(connection.cast_const())
}

/// The VIP of the connection in the socket's slot, if that went to `peer`.
#[inline(always)]
pub(crate) fn vip<F: HookFamily>(ctx: &SocketContext<F>, peer: &Peer) -> Option<Peer> {
    let connection = get(ctx)?;
    // SAFETY: the pointer is to a value of the array.
    unsafe { ((*connection).backend() == *peer).then_some((*connection).vip()) }
}

/// Stores a connection in a slot of the socket. Returns false if both slots are taken, or if the socket is
/// connected to what its slot has: a connect that fails leaves it so.
#[inline(always)]
pub(crate) fn put<F: HookFamily>(ctx: &SocketContext<F>, connection: &Connection) -> bool {
    let cookie = ctx.socket_cookie();
    let Some(tags) = Tags::of(cookie) else { return false };
    let read = tags.read();
    let mut way = tags.place.own_way(read);
    if way == NO_WAY {
        way = tags.place.free_way(read);
        if way == NO_WAY {
            return false;
        }
    } else {
        let Some(former) = tags.connection(way) else { return false };
        // SAFETY: the pointer is to a value of the array.
        let former = unsafe { (*former).backend() };
        if former != connection.backend && ctx.is_connected_to(&former) {
            return false;
        }
        // Nobody takes the slot: it is free only to others of the pair, and for an instant.
        tags.set(way, 0);
    }
    let Some(slot) = tags.connection(way) else { return false };
    let value = SlotConnection {
        vip: connection.vip.addr,
        backend: connection.backend.addr,
        vip_port: connection.vip.port,
        backend_port: connection.backend.port,
        listed: ctx.is_udp().into(),
        chosen: connection.chosen,
        netns_cookie: ctx.netns_cookie(),
        cookie,
    };
    // SAFETY: the pointer is to a value of the array.
    unsafe { store(slot, &value) };
    tags.set(way, tags.place.tag());
    true
}

/// Frees the slot of the socket if it is connected to `backend` by it.
#[inline(always)]
pub(crate) fn forget<F: HookFamily>(ctx: &SocketContext<F>, backend: &Peer) {
    if let Some(connection) = get(ctx)
        // SAFETY: the pointer is to a value of the array.
        && unsafe { (*connection).backend() == *backend }
    {
        release(ctx.socket_cookie());
    }
}

/// Frees the slot of the socket with this cookie, if it has one.
#[inline(always)]
pub(crate) fn release(cookie: u64) {
    if let Some(tags) = Tags::of(cookie) {
        let way = tags.place.own_way(tags.read());
        if way != NO_WAY {
            tags.set(way, 0);
        }
    }
}
