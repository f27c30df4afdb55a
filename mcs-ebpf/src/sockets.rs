//! What is remembered of a socket that used a VIP.
//!
//! Socket storage lives and dies with the socket. Where the kernel cannot give it (its option
//! memory is used up), `udp_reverse` holds the same under the socket's cookie, and a flag makes
//! every reader look there: it costs those who never use a VIP, so it is set when it first happens.

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_SK_STORAGE_GET_F_CREATE},
    helpers::generated::bpf_sk_storage_get,
};
use mcs_common::{
    Address, BackendRef, ConnectedValue, Connection, Counter, Peer, ReverseKey, ReverseValue,
    SocketState,
};

use crate::{
    context::{Ctx, Family},
    counters::count,
    maps::{SOCKETS, STORAGE_FALLBACK, UDP_CONNECTED, UDP_REVERSE},
};

/// No connection: its backend's id is 0.
pub(crate) const NOT_CONNECTED: Connection = Connection {
    vip: Peer::new(Address { addr: [0; 16] }, 0),
    backend: Peer::new(Address { addr: [0; 16] }, 0),
    chosen: BackendRef { id: 0, generation: 0 },
};

/// The socket's state, if it ever used a VIP.
#[inline(always)]
pub(crate) fn state<'a, F: Family>(ctx: &Ctx<F>) -> Option<&'a mut SocketState> {
    storage(ctx, 0)
}

/// The socket's state, made if it has none.
#[inline(always)]
fn state_or_new<'a, F: Family>(ctx: &Ctx<F>) -> Option<&'a mut SocketState> {
    storage(ctx, BPF_SK_STORAGE_GET_F_CREATE.into())
}

#[inline(always)]
fn storage<'a, F: Family>(ctx: &Ctx<F>, flags: u64) -> Option<&'a mut SocketState> {
    let map = (&raw const SOCKETS).cast_mut().cast();
    // SAFETY: the helper returns null or the value of this socket, which outlives the program run
    // and which the kernel zeroes when it makes it.
    unsafe {
        bpf_sk_storage_get(map, ctx.socket().cast(), ptr::null_mut(), flags)
            .cast::<SocketState>()
            .as_mut()
    }
}

/// Remembers that the socket connects to a VIP.
#[inline(always)]
pub(crate) fn connecting<F: Family>(ctx: &Ctx<F>, connection: &Connection) {
    if let Some(state) = state_or_new(ctx) {
        // The connect may still fail, and the socket stay connected where it is: that is not
        // `current` if the connect before has failed too.
        if state.current.chosen.id != 0
            && state.current.backend != connection.backend
            && ctx.is_connected_to(&state.current.backend)
        {
            state.previous = state.current;
        }
        state.current = *connection;
        if ctx.is_udp() {
            remember_connected(ctx, connection);
        }
    } else {
        storage_failed();
        remember_reverse(ctx, &connection.backend, &connection.vip);
    }
}

/// Lists the connection for the agent. Only of a socket with storage: a direct connection that it makes
/// later to the same backend is noticed by that, and takes it off the list.
#[inline(always)]
fn remember_connected<F: Family>(ctx: &Ctx<F>, connection: &Connection) {
    let key = ReverseKey { cookie: ctx.socket_cookie(), backend: connection.backend };
    let value = ConnectedValue { vip: connection.vip, netns_cookie: ctx.netns_cookie() };
    // As in `remember_reverse`; such a socket stays with its backend when that goes.
    let _ = UDP_CONNECTED.insert(key, value, BPF_ANY.into());
}

/// The socket's connection to `vip`: the one that holds now, or else the one made last, or else
/// [`NOT_CONNECTED`]. (No `Option`: of an absent one LLVM spills registers it never set, which the
/// verifier refuses.)
#[inline(always)]
pub(crate) fn connection_to<F: Family>(ctx: &Ctx<F>, vip: &Peer) -> Connection {
    let mut found = NOT_CONNECTED;
    let Some(state) = state(ctx) else { return found };
    for connection in [&state.previous, &state.current] {
        if connection.chosen.id != 0 && connection.vip == *vip {
            found = *connection;
            if ctx.is_connected_to(&connection.backend) {
                break;
            }
        }
    }
    found
}

/// Remembers that the socket sends to a VIP without connecting.
#[inline(always)]
pub(crate) fn sending<F: Family>(ctx: &Ctx<F>) {
    match state_or_new(ctx) {
        Some(state) => state.unconnected = 1,
        None => storage_failed(),
    }
}

/// Remembers which VIP a reply of `backend` answers for.
#[inline(always)]
pub(crate) fn remember_reverse<F: Family>(ctx: &Ctx<F>, backend: &Peer, vip: &Peer) {
    let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *backend };
    if let Some(known) = UDP_REVERSE.get_ptr(key) {
        // SAFETY: the pointer is to a value of the map; a reused element is overwritten next time.
        if unsafe { (*known).vip == *vip } {
            return;
        }
        count(Counter::ReverseShared);
    }
    // A full LRU map evicts; it can only fail when every CPU's free list is in use, and then the
    // reply is shown as it came.
    let _ = UDP_REVERSE.insert(key, ReverseValue { vip: *vip }, BPF_ANY.into());
}

/// Forgets what the socket knows of `destination`, which it now addresses by itself.
#[inline(always)]
pub(crate) fn addressing_directly<F: Family>(ctx: &Ctx<F>, destination: &Peer, connects: bool) {
    let mut reverse = is_fallback();
    if let Some(state) = state(ctx) {
        if connects {
            // Of all connections that it ever made, more than its state holds.
            let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *destination };
            let _ = UDP_CONNECTED.remove(key);
            for connection in [&mut state.current, &mut state.previous] {
                if connection.chosen.id != 0 && connection.backend == *destination {
                    *connection = NOT_CONNECTED;
                }
            }
        }
        reverse |= state.unconnected != 0;
    }
    // A send of an IPv6 socket that is connected to an IPv4 peer comes here with that peer, and no
    // connected socket hears from anybody else.
    if reverse && (connects || !ctx.is_connected()) {
        let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *destination };
        // Absent is as good.
        let _ = UDP_REVERSE.remove(key);
    }
}

/// The VIP that the socket connected to when it got `peer`.
#[inline(always)]
pub(crate) fn connected_vip(state: &SocketState, peer: &Peer) -> Option<Peer> {
    for connection in [&state.current, &state.previous] {
        if connection.chosen.id != 0 && connection.backend == *peer {
            return Some(connection.vip);
        }
    }
    None
}

/// The VIP that the socket sent to when `peer` answers.
#[inline(always)]
pub(crate) fn sent_vip<F: Family>(ctx: &Ctx<F>, peer: &Peer) -> Option<Peer> {
    let key = ReverseKey { cookie: ctx.socket_cookie(), backend: *peer };
    // SAFETY: the pointer is to a value of the map; if it is reused between look-up and copy, a
    // reply is shown as from another VIP of the node: the cost of an LRU map.
    UDP_REVERSE.get_ptr(key).map(|value| unsafe { (*value).vip })
}

/// Whether any socket of this node is remembered in `udp_reverse` alone.
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
