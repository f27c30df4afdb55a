//! sendto(2), sendmsg(2) and sendmmsg(2) with a destination.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_log_ebpf::debug;
use mcs_common::{
    Connection, Counter, Peer, PinKey, ReverseKey,
    select::{Choice, FrontendMatch, recall},
};

use crate::{
    affinity::{self, choose},
    context::{ALLOW, Ctx, Family, refuse},
    counters::count,
    destination,
    maps::{ConfigMaps, UDP_PINS, UDP_REVERSE, load},
    sockets,
};

/// How many backends are tried for one from which the socket hears for no other VIP.
const TRIES: u32 = 4;

/// Sends a datagram to a VIP to one of its backends, the same for one socket, or refuses it.
#[inline(always)]
pub(crate) fn sendmsg<F: Family>(ctx: &Ctx<F>) -> i32 {
    let destination = ctx.peer();
    match destination::frontend(ctx, &destination, false) {
        Ok(frontend) => translate(ctx, destination, &frontend),
        Err(verdict) => verdict,
    }
}

#[inline(always)]
fn translate<F: Family>(ctx: &Ctx<F>, vip: Peer, frontend: &FrontendMatch) -> i32 {
    let mut connection = connected(ctx, &vip, frontend);
    if connection.chosen.id == 0 {
        let Some(choice) = pinned(ctx, &vip, frontend) else {
            return refuse(Counter::RefusedNoBackend);
        };
        connection = choice.connection(vip);
    }
    let Connection { backend, chosen, .. } = connection;
    sockets::sending(ctx);
    sockets::remember_reverse(ctx, &backend, &vip);
    ctx.set_peer(&backend.addr, backend.port);
    count(Counter::SendTranslated);
    debug!(ctx.inner(), "send: frontend {} to backend {}", frontend.index, chosen.id);
    ALLOW
}

/// The connection of this socket to this VIP. A connected socket hears from nobody else, so it
/// stays with a backend that was removed. After a disconnect a usable one is still the one to take:
/// IPv6 sockets go on hearing from it alone (`__udp_disconnect`, net/ipv4/udp.c, leaves
/// `sk_v6_daddr`).
#[inline(always)]
fn connected<F: Family>(ctx: &Ctx<F>, vip: &Peer, frontend: &FrontendMatch) -> Connection {
    let connection = sockets::connection_to(ctx, vip);
    let usable = connection.chosen.id != 0
        && (ctx.is_connected_to(&connection.backend)
            || recall(&ConfigMaps, frontend.index, connection.chosen).is_some());
    if usable { connection } else { sockets::NOT_CONNECTED }
}

/// The backend this socket uses for this frontend, chosen anew when it is no longer usable.
#[inline(always)]
fn pinned<F: Family>(ctx: &Ctx<F>, vip: &Peer, frontend: &FrontendMatch) -> Option<Choice> {
    let key = PinKey { cookie: ctx.socket_cookie(), frontend: frontend.index, pad: 0 };
    let pin = UDP_PINS.get_ptr_mut(key);
    if let Some(pin) = pin {
        // SAFETY: the pointer is to a value of the map. If it is evicted and reused meanwhile, the
        // backend's frontend and generation do not match.
        let pinned = unsafe { load(pin) };
        if let Some(choice) = recall(&ConfigMaps, frontend.index, pinned) {
            affinity::refresh(ctx, frontend, pinned);
            return Some(choice);
        }
    }
    let choice = choose_unshared(ctx, vip, frontend)?;
    match pin {
        // SAFETY: as above; one 64-bit store.
        Some(pin) => unsafe { pin.write_volatile(choice.chosen) },
        // Another thread of this socket may have pinned at the same time; the next datagram
        // follows what stands then.
        None => {
            let _ = UDP_PINS.insert(key, choice.chosen, BPF_NOEXIST.into());
        }
    }
    Some(choice)
}

/// A backend from which this socket hears for no other VIP, as far as a few tries find one.
#[inline(always)]
fn choose_unshared<F: Family>(
    ctx: &Ctx<F>,
    vip: &Peer,
    frontend: &FrontendMatch,
) -> Option<Choice> {
    let cookie = ctx.socket_cookie();
    let mut choice = choose(ctx, frontend)?;
    for _ in 1..TRIES {
        let backend = Peer::new(choice.backend.addr, choice.backend.port);
        // SAFETY: the pointer is to a value of the map.
        let shared = UDP_REVERSE
            .get_ptr(ReverseKey { cookie, backend })
            .is_some_and(|value| unsafe { (*value).vip != *vip });
        if !shared {
            break;
        }
        choice = choose(ctx, frontend)?;
    }
    Some(choice)
}
