//! sendto(2), sendmsg(2) and sendmmsg(2) with a destination: a datagram to a VIP goes to a backend.

use mcs_common::{
    Connection, Counter, Peer, PinKey,
    select::{Choice, FrontendMatch, recall},
};

use super::{
    affinity::{self, choose},
    context::{ALLOW, HookFamily, SocketContext},
    lookup,
    refuse::refuse,
    state,
};
use crate::{
    counters::count,
    features,
    maps::{ConfigMaps, UDP_PINS, load},
};

/// How many backends a socket tries. One that already answers it for another VIP is not used if
/// another try finds a better one, because replies do not tell the VIPs apart.
const TRIES: u32 = 4;

/// Sends a datagram to a VIP to one of its backends, or refuses it. A socket keeps its backend.
#[inline(always)]
pub(crate) fn sendmsg<F: HookFamily>(ctx: &SocketContext<F>) -> i32 {
    let destination = ctx.peer();
    match lookup::frontend(ctx, &destination, false) {
        Ok(frontend) => translate(ctx, destination, &frontend),
        Err(verdict) => verdict,
    }
}

#[inline(always)]
fn translate<F: HookFamily>(ctx: &SocketContext<F>, vip: Peer, frontend: &FrontendMatch) -> i32 {
    // It connected before the agent served the VIP, and receives from the VIP alone. An IPv6 socket with an
    // IPv4 peer runs sendmsg4 with each send.
    if ctx.is_connected_to(&vip) {
        return ALLOW;
    }
    let mut connection = connected(ctx, &vip, frontend);
    let mut by_affinity = false;
    if connection.chosen.id == 0 {
        let Some(choice) = pinned(ctx, &vip, frontend) else {
            features::no_backend(frontend);
            return refuse(ctx, Counter::RefusedNoBackend);
        };
        connection = choice.connection(vip);
        by_affinity = choice.by_affinity;
    }
    let Connection { backend, chosen, .. } = connection;
    state::sending(ctx);
    state::remember_sent(ctx, &backend, &vip);
    ctx.set_peer(&backend.addr, backend.port);
    count(Counter::SendTranslated);
    features::sent(ctx, frontend, chosen, by_affinity);
    ALLOW
}

/// The connection of this socket to this VIP.
///
/// A connected socket receives from its peer alone, so it keeps a backend that was removed. After a
/// disconnect it keeps a backend that is still usable: IPv6 sockets go on receiving from that peer
/// alone (`__udp_disconnect`, net/ipv4/udp.c, leaves `sk_v6_daddr`).
#[inline(always)]
fn connected<F: HookFamily>(
    ctx: &SocketContext<F>,
    vip: &Peer,
    frontend: &FrontendMatch,
) -> Connection {
    let connection = state::connection_to(ctx, vip);
    let usable = connection.chosen.id != 0
        && (ctx.is_connected_to(&connection.backend)
            || recall(&ConfigMaps, frontend.index, connection.chosen).is_some());
    if usable { connection } else { state::NOT_CONNECTED }
}

/// The backend that this socket uses for this frontend, or a new one if that is no longer usable.
#[inline(always)]
fn pinned<F: HookFamily>(
    ctx: &SocketContext<F>,
    vip: &Peer,
    frontend: &FrontendMatch,
) -> Option<Choice> {
    let key = PinKey { cookie: ctx.socket_cookie(), frontend: frontend.index, pad: 0 };
    let pin = UDP_PINS.get_ptr_mut(key);
    if let Some(pin) = pin {
        // SAFETY: the pointer is to a value of the map. If the map evicts and reuses the
        // element meanwhile, the backend's frontend and generation do not match.
        let pinned = unsafe { load(pin) };
        if let Some(choice) = recall(&ConfigMaps, frontend.index, pinned) {
            affinity::refresh(ctx, frontend, pinned);
            return Some(choice);
        }
    }
    let choice = choose_unshared(ctx, vip, frontend)?;
    features::pinned(frontend, &choice);
    match pin {
        // SAFETY: as above; one 64-bit store.
        Some(pin) => unsafe { pin.write_volatile(choice.chosen) },
        None => state::add_pin(ctx, key, choice.chosen),
    }
    Some(choice)
}

/// Chooses a backend that answers this socket for no other VIP, if [`TRIES`] attempts find one.
#[inline(always)]
fn choose_unshared<F: HookFamily>(
    ctx: &SocketContext<F>,
    vip: &Peer,
    frontend: &FrontendMatch,
) -> Option<Choice> {
    let mut choice = choose(ctx, frontend)?;
    for _ in 1..TRIES {
        let backend = Peer::new(choice.backend.addr, choice.backend.port);
        if !state::answers_another(ctx, &backend, vip) {
            break;
        }
        choice = choose(ctx, frontend)?;
    }
    Some(choice)
}
