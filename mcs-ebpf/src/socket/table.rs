//! The table of sockets that are connected to a VIP: a slot for each, without allocation.
//!
//! The kernel runs the hooks of one socket one after the other, with its lock held. Two sockets can try to take a free
//! slot at the same instant: see [`Tags::take`].

use core::{arch::asm, hint::cold_path};

use aya_ebpf::Global;
use mcs_common::{Connection, NO_WAY, Peer, SocketSlot, SocketSlotPlace, TAKER, TagPair, tags};

use super::context::{HookFamily, SocketContext};
use crate::maps::{SOCKET_CONNS, SOCKET_TAGS, store};

/// The table has two to the power of this many slots.
#[unsafe(no_mangle)]
static SOCKET_SLOT_BITS: Global<u32> = Global::new(mcs_common::maps::SOCKET_SLOT_BITS);

/// The tags of a socket's pair of slots.
struct Tags {
    place: SocketSlotPlace,
    pair: *mut TagPair,
}

impl Tags {
    #[inline(always)]
    fn of(cookie: u64) -> Option<Self> {
        let place = SocketSlotPlace::of(cookie, SOCKET_SLOT_BITS.load());
        Some(Self { place, pair: SOCKET_TAGS.get_ptr_mut(place.pair())? })
    }

    #[inline(always)]
    fn read(&self) -> TagPair {
        bytemuck::cast(self.word())
    }

    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "the kernel aligns a map's values to 8 bytes")]
    fn word(&self) -> u64 {
        // SAFETY: the pointer is to a value of the array, which is aligned to 8 bytes.
        unsafe { self.pair.cast::<u64>().read_volatile() }
    }

    /// Takes a way that was free when the pair was `read`. Returns false if another socket may take one at the same instant.
    ///
    /// Each socket counts itself, and leaves its tag if nothing else has changed. So of several sockets at most one takes a
    /// way, and who has one keeps it meanwhile. All is in one word, of which all CPUs see the same changes in the same
    /// order. Kernels before 5.12 have no exchange that is atomic.
    #[inline(always)]
    fn take(&self, way: u32, read: TagPair) -> bool {
        const ONE: u64 = TAKER as u64;
        if tags(read) != read {
            return false;
        }
        self.add(ONE);
        let is_alone = self.word() == bytemuck::cast::<TagPair, u64>(read).wrapping_add(ONE);
        self.add(if is_alone { self.tag(way) } else { 0 }.wrapping_sub(ONE));
        is_alone
    }

    /// Frees a way that the socket has taken.
    #[inline(always)]
    fn free(&self, way: u32) {
        self.add(self.tag(way).wrapping_neg());
    }

    /// The socket's tag, where a way has it in the word. Programs are little-endian.
    #[inline(always)]
    fn tag(&self, way: u32) -> u64 {
        u64::from(self.place.tag()) << (32 * (way & 1))
    }

    /// Adds to the pair at once.
    #[inline(always)]
    fn add(&self, number: u64) {
        // SAFETY: the pointer is to a value of the array, which is aligned to 8 bytes.
        unsafe {
            asm!("lock *(u64 *)({pair} + 0) += {number}", pair = in(reg) self.pair, number = in(reg) number);
        }
    }

    #[inline(always)]
    fn connection(&self, way: u32) -> Option<*mut SocketSlot> {
        SOCKET_CONNS.get_ptr_mut(self.place.slot(way))
    }
}

/// The connection in the socket's slot.
#[inline(always)]
pub(crate) fn get<F: HookFamily>(ctx: &SocketContext<F>) -> Option<*const SocketSlot> {
    find(ctx.socket_cookie())
}

/// The connection in the slot of the socket with this cookie.
#[inline(always)]
pub(crate) fn find(cookie: u64) -> Option<*const SocketSlot> {
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
/// connected to the peer in its slot: a failed connect leaves it so.
#[inline(always)]
pub(crate) fn put<F: HookFamily>(ctx: &SocketContext<F>, connection: &Connection) -> bool {
    let cookie = ctx.socket_cookie();
    let Some(tags) = Tags::of(cookie) else { return false };
    let read = tags.read();
    let own = tags.place.own_way(read);
    let way = if own == NO_WAY { tags.place.free_way(read) } else { own };
    if way == NO_WAY {
        cold_path();
        return false;
    }
    let Some(slot) = tags.connection(way) else { return false };
    if own == NO_WAY {
        if !tags.take(way, read) {
            cold_path();
            return false;
        }
    } else {
        cold_path();
        // SAFETY: the pointer is to a value of the array.
        let former = unsafe { (*slot).backend() };
        if former != connection.backend && ctx.is_connected_to(&former) {
            return false;
        }
    }
    let value = SocketSlot {
        vip: connection.vip.addr,
        backend: connection.backend.addr,
        vip_port: connection.vip.port,
        backend_port: connection.backend.port,
        listed: if ctx.is_udp() { SocketSlot::number(cookie, connection.chosen) } else { 0 },
        chosen: connection.chosen,
        netns_cookie: ctx.netns_cookie(),
        cookie,
    };
    // SAFETY: the pointer is to a value of the array. Until all is stored, the slot shows no connection: the cookie
    // is the last word.
    unsafe {
        (&raw mut (*slot).cookie).write_volatile(0);
        store(slot, &value);
    }
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
            tags.free(way);
        }
    }
}
