//! Stores which VIPs a socket uses, and which backends it got for them.
//!
//! A connection is in the socket's slot of the [`table`]. Where that has no room for it, and for what
//! sockets send without connecting, there is socket storage, which lives as long as the socket. It has the
//! latest pairs of VIP and backend of unconnected sends too; `udp_reverse` has the earlier ones, and those
//! that agents before this one left. When the kernel cannot allocate storage (the socket's option memory is
//! used up), `udp_reverse` holds the same under the socket's cookie. The flag `storage_fallback` then makes
//! every reader look there. That costs sockets that never use a VIP too, so it is set only when the first
//! allocation fails.
//!
//! A connect may fail after its hook has run, and the socket then keeps its peer. So a connection replaces the
//! one that the socket has at the time only if it goes to the same backend. Where the slot and storage have
//! the same backend, the slot is newer.

use core::{hint::cold_path, ptr};

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_NOEXIST, BPF_SK_STORAGE_GET_F_CREATE, bpf_sock},
    btf_maps::SkStorage,
    helpers::generated::bpf_sk_storage_get,
};
use bytemuck::Pod;
use mcs_common::{
    Address, BackendRef, ConnectedValue, Connection, Counter, Peer, PinKey, ReverseKey,
    ReverseValue, Sent, SentPair, SocketState,
};

use super::{
    context::{HookFamily, SocketContext},
    table,
};
use crate::{
    counters::count,
    maps::{SENT_PAIRS, SOCKETS, STORAGE_FALLBACK, UDP_CONNECTED, UDP_PINS, UDP_REVERSE},
};

/// The value of an unused connection: its backend's id is 0.
pub(crate) const NOT_CONNECTED: Connection = Connection {
    vip: Peer::new(Address { addr: [0; 16] }, 0),
    backend: Peer::new(Address { addr: [0; 16] }, 0),
    chosen: BackendRef { id: 0, generation: 0 },
};

/// A pointer to the state of a socket, which outlives the run of the program.
#[derive(Clone, Copy)]
pub(crate) struct StatePointer(*mut SocketState);

/// The socket's state, if the socket ever used a VIP.
#[inline(always)]
pub(crate) fn get<F: HookFamily>(ctx: &SocketContext<F>) -> Option<StatePointer> {
    storage(&SOCKETS, ctx.socket(), 0).map(StatePointer)
}

/// The socket's state, created if it has none.
#[inline(always)]
fn get_or_create<F: HookFamily>(ctx: &SocketContext<F>) -> Option<*mut SocketState> {
    storage(&SOCKETS, ctx.socket(), BPF_SK_STORAGE_GET_F_CREATE.into())
}

/// The socket's value in a map of socket storage. With `BPF_SK_STORAGE_GET_F_CREATE` in `flags` it is
/// created if it has none, of zeros.
///
/// It is no reference, because several threads run programs for one socket at once.
#[inline(always)]
fn storage<T: Pod>(
    map: &'static SkStorage<T>,
    socket: *mut bpf_sock,
    flags: u64,
) -> Option<*mut T> {
    let map = ptr::from_ref(map).cast_mut().cast();
    // SAFETY: the helper takes a map of socket storage and the hook's socket.
    let value = unsafe { bpf_sk_storage_get(map, socket.cast(), ptr::null_mut(), flags) };
    if value.is_null() { None } else { Some(value.cast()) }
}

/// Remembers that the socket connects to a VIP.
///
/// Nothing is stored for Multipath TCP where the hook runs for the application's socket: no hook runs for the name of
/// its peer. Where it runs for the first subflow, that is a TCP socket for the hook, but a socket of the kernel, which no
/// hook releases. The agent frees its slot.
#[inline(always)]
pub(crate) fn connecting<F: HookFamily>(ctx: &SocketContext<F>, connection: &Connection) {
    if ctx.is_mptcp() || table::put(ctx, connection) {
        return;
    }
    cold_path();
    count(Counter::SlotUnavailable);
    if let Some(state) = get_or_create(ctx) {
        // The connect may still fail, and the socket then keeps its peer. That peer is not `current`
        // if the connect before this one failed too.
        // SAFETY: the pointer is to the socket's value.
        unsafe {
            if (*state).current.chosen.id != 0
                && (*state).current.backend != connection.backend
                && ctx.is_connected_to(&(*state).current.backend)
            {
                (*state).previous = (*state).current;
            }
            (*state).current = *connection;
        }
        remember_connected(ctx, connection);
    } else {
        storage_failed();
        remember_reverse(ctx, &connection.backend, &connection.vip);
    }
}

/// Lists the connection for the agent, which counts the sockets of a backend, and destroys those of a removed one. The
/// agent finds those with a slot in the table.
///
/// Only sockets with storage are listed: `addressing_directly` needs the storage to notice a later
/// direct connection to the same backend, and then removes the entry.
#[inline(always)]
fn remember_connected<F: HookFamily>(ctx: &SocketContext<F>, connection: &Connection) {
    let key = ReverseKey { cookie: ctx.socket_cookie(), backend: connection.backend };
    let value = ConnectedValue::new(connection.vip, !ctx.is_udp(), ctx.netns_cookie());
    // It fails as in `remember_reverse`. The socket then counts nowhere, and keeps its backend when that is removed.
    let _ = UDP_CONNECTED.insert(key, value, BPF_ANY.into());
}

/// The socket's connection to `vip`: the one to its current peer, or else the latest, or else
/// [`NOT_CONNECTED`]. (Not an `Option`: LLVM spills registers that an absent one never set, and the
/// verifier rejects that.)
#[inline(always)]
pub(crate) fn connection_to<F: HookFamily>(ctx: &SocketContext<F>, vip: &Peer) -> Connection {
    let mut found = NOT_CONNECTED;
    if let Some(slot) = table::get(ctx) {
        // SAFETY: the pointer is to a value of the table.
        let connection = unsafe { (*slot).connection() };
        if connection.vip == *vip {
            found = connection;
            if ctx.is_connected_to(&connection.backend) {
                return found;
            }
        }
    }
    let Some(StatePointer(state)) = get(ctx) else { return found };
    // What the slot has is the latest.
    let has_slot = found.chosen.id != 0;
    // SAFETY: the pointer is to the socket's value.
    for connection in unsafe { [&(*state).previous, &(*state).current] } {
        if connection.chosen.id != 0 && connection.vip == *vip {
            let is_connected = ctx.is_connected_to(&connection.backend);
            if is_connected || !has_slot {
                found = *connection;
            }
            if is_connected {
                break;
            }
        }
    }
    found
}

/// Remembers that the socket sends to a VIP without connecting.
#[inline(always)]
pub(crate) fn sending<F: HookFamily>(ctx: &SocketContext<F>) {
    match get_or_create(ctx) {
        // Only the first time: a later store could undo that of a thread which adds a pin.
        // SAFETY: the pointer is to the socket's value.
        Some(state) => unsafe {
            if (*state).unconnected == 0 {
                (*state).unconnected = Sent::ANY;
            }
        },
        None => storage_failed(),
    }
}

/// Adds a pin, and remembers it for the end of the socket.
#[inline(always)]
pub(crate) fn add_pin<F: HookFamily>(ctx: &SocketContext<F>, key: PinKey, chosen: BackendRef) {
    // Another thread with this socket may have inserted a pin at the same time. The next datagram uses the pin in the
    // map.
    let _ = UDP_PINS.insert(key, chosen, BPF_NOEXIST.into());
    if let Some(state) = get_or_create(ctx) {
        // SAFETY: the pointer is to the socket's value.
        unsafe { (*state).unconnected = Sent::with_pin((*state).unconnected, key.frontend) };
    }
}

#[inline(always)]
fn forget_connected(cookie: u64, connection: &Connection) {
    if connection.chosen.id != 0 {
        // An absent entry counts as success.
        let _ = UDP_CONNECTED.remove(ReverseKey { cookie, backend: connection.backend });
    }
}

/// Removes the connections and the pin of a socket that is closed. Several pins stay, with an entry that says so: the agent counts the sockets
/// that have pins.
#[inline(always)]
pub(crate) fn closed(socket: *mut bpf_sock, cookie: u64) {
    let Some(state) = storage(&SOCKETS, socket, 0) else { return };
    // SAFETY: the pointer is to the socket's value. Nobody else has a socket that is closed.
    let SocketState { current, previous, unconnected } = unsafe { &*state };
    forget_connected(cookie, current);
    forget_connected(cookie, previous);
    let sent = *unconnected;
    if sent == 0 {
        return;
    }
    let key = PinKey { cookie, frontend: Sent::only_pin(sent), pad: 0 };
    if key.frontend == PinKey::CLOSED {
        let none = BackendRef { id: 0, generation: 0 };
        // It fails as in `remember_reverse`. The socket then counts until its pins are evicted.
        let _ = UDP_PINS.insert(key, none, BPF_ANY.into());
    } else {
        // An absent entry counts as success.
        let _ = UDP_PINS.remove(key);
    }
}

/// Remembers the VIP that replies of `backend` come from, in the socket's storage. The pair that leaves it goes
/// to `udp_reverse`.
#[inline(always)]
pub(crate) fn remember_sent<F: HookFamily>(ctx: &SocketContext<F>, backend: &Peer, vip: &Peer) {
    let Some(pairs) = storage(&SENT_PAIRS, ctx.socket(), BPF_SK_STORAGE_GET_F_CREATE.into()) else {
        remember_reverse(ctx, backend, vip);
        return;
    };
    // SAFETY: the pointer is to the socket's value.
    unsafe {
        for pair in [&raw mut (*pairs).latest, &raw mut (*pairs).previous] {
            if (*pair).backend == *backend {
                if (*pair).vip != *vip {
                    count(Counter::ReverseShared);
                    (*pair).vip = *vip;
                }
                return;
            }
        }
        let SentPair { vip: former, backend: left } = (*pairs).previous;
        if left.port != 0 {
            remember_reverse(ctx, &left, &former);
        }
        (*pairs).previous = (*pairs).latest;
        (*pairs).latest = SentPair { vip: *vip, backend: *backend };
    }
}

/// Whether `backend` answers this socket for another VIP.
#[inline(always)]
pub(crate) fn answers_another<F: HookFamily>(
    ctx: &SocketContext<F>,
    backend: &Peer,
    vip: &Peer,
) -> bool {
    sent_vip(ctx, backend).is_some_and(|other| other != *vip)
}

/// Remembers in `udp_reverse` the VIP that replies of `backend` come from.
#[inline(always)]
fn remember_reverse<F: HookFamily>(ctx: &SocketContext<F>, backend: &Peer, vip: &Peer) {
    let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *backend };
    if let Some(known) = UDP_REVERSE.get_ptr(key) {
        // SAFETY: the pointer is to a value of the map. A reused element is overwritten next time.
        if unsafe { (*known).vip == *vip } {
            return;
        }
        count(Counter::ReverseShared);
    }
    // A full LRU map evicts an entry. It fails only when every CPU's free list is in use. The reply
    // then shows the backend's address.
    let _ = UDP_REVERSE.insert(key, ReverseValue { vip: *vip }, BPF_ANY.into());
}

/// Deletes the socket's entries for `destination`, because the application now uses that address
/// itself.
#[inline(always)]
pub(crate) fn addressing_directly<F: HookFamily>(
    ctx: &SocketContext<F>,
    destination: &Peer,
    connects: bool,
) {
    if connects {
        table::forget(ctx, destination);
    }
    let mut reverse = is_fallback();
    if let Some(state) = get(ctx) {
        if connects {
            let StatePointer(state) = state;
            // The map may list connections that the socket's state no longer holds.
            let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *destination };
            let _ = UDP_CONNECTED.remove(key);
            // SAFETY: the pointer is to the socket's value.
            unsafe {
                for connection in [&raw mut (*state).current, &raw mut (*state).previous] {
                    if (*connection).chosen.id != 0 && (*connection).backend == *destination {
                        *connection = NOT_CONNECTED;
                    }
                }
            }
        }
        reverse |= state.has_sent();
    }
    // An IPv6 socket with an IPv4 peer runs sendmsg4 with that peer as the destination. A connected
    // socket receives from no other address, so its entry stays.
    if reverse && (connects || !ctx.is_connected()) {
        let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *destination };
        // An absent entry counts as success.
        let _ = UDP_REVERSE.remove(key);
        forget_pairs(ctx.socket(), destination);
    }
}

/// Deletes the socket's pairs with this backend.
#[inline(always)]
fn forget_pairs(socket: *mut bpf_sock, backend: &Peer) {
    if let Some(pairs) = storage(&SENT_PAIRS, socket, 0) {
        // SAFETY: the pointer is to the socket's value.
        unsafe {
            for pair in [&raw mut (*pairs).latest, &raw mut (*pairs).previous] {
                if (*pair).backend == *backend {
                    (*pair).backend.port = 0;
                }
            }
        }
    }
}

impl StatePointer {
    /// Whether the socket has sent to a VIP without connecting.
    #[inline(always)]
    pub(crate) fn has_sent(self) -> bool {
        // SAFETY: the pointer is to the socket's value.
        unsafe { (*self.0).unconnected != 0 }
    }

    /// The VIP that the application connected to, if the connection went to `peer`.
    #[inline(always)]
    pub(crate) fn connected_vip(self, peer: &Peer) -> Option<Peer> {
        // SAFETY: the pointer is to the socket's value.
        for connection in unsafe { [&(*self.0).current, &(*self.0).previous] } {
            if connection.chosen.id != 0 && connection.backend == *peer {
                return Some(connection.vip);
            }
        }
        None
    }
}

/// The VIP that the application sent to, if the datagram went to `peer`.
#[inline(always)]
pub(crate) fn sent_vip<F: HookFamily>(ctx: &SocketContext<F>, peer: &Peer) -> Option<Peer> {
    if let Some(pairs) = storage(&SENT_PAIRS, ctx.socket(), 0) {
        // SAFETY: the pointer is to the socket's value.
        for pair in unsafe { [&(*pairs).latest, &(*pairs).previous] } {
            if pair.backend == *peer {
                return Some(pair.vip);
            }
        }
    }
    tabled_vip(ctx, peer)
}

/// As [`sent_vip`] and [`StatePointer::connected_vip`], for what is in `udp_reverse`.
#[inline(always)]
pub(crate) fn tabled_vip<F: HookFamily>(ctx: &SocketContext<F>, peer: &Peer) -> Option<Peer> {
    let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *peer };
    // SAFETY: the pointer is to a value of the map. If the LRU map reuses it between look-up and copy,
    // the reply shows another VIP of the node.
    UDP_REVERSE.get_ptr(key).map(|value| unsafe { (*value).vip })
}

/// Whether the state of any socket of this node is in `udp_reverse` alone.
#[inline(always)]
pub(crate) fn is_fallback() -> bool {
    // SAFETY: the pointer is to the array's only value.
    STORAGE_FALLBACK.get_ptr(0).is_some_and(|flag| unsafe { flag.read_volatile() != 0 })
}

#[inline(always)]
fn storage_failed() {
    count(Counter::StorageFailed);
    if let Some(flag) = STORAGE_FALLBACK.get_ptr_mut(0) {
        // SAFETY: as in `is_fallback`.
        unsafe { flag.write_volatile(1) };
    }
}
