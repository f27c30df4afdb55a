//! What the application sees: the VIP, never a backend.

use mcs_common::Counter;

use crate::{
    context::{ALLOW, Ctx, Family},
    counters::count,
    sockets,
};

/// recvfrom(2), recvmsg(2) and recvmmsg(2) with a place for the source address. Servers come here
/// with each datagram: a socket that never used a VIP costs one look at an empty pointer.
#[inline(always)]
pub(crate) fn recvmsg<F: Family>(ctx: &Ctx<F>) -> i32 {
    let mut sent = sockets::is_fallback();
    if let Some(state) = sockets::state(ctx) {
        // connect(AF_UNSPEC) calls no hook: only the socket knows that it has no peer any more.
        if ctx.is_connected()
            && let Some(vip) = sockets::connected_vip(state, &ctx.peer())
        {
            ctx.set_peer(&vip.addr, vip.port);
            count(Counter::ReceiveReversed);
            return ALLOW;
        }
        sent |= state.unconnected != 0;
    }
    if sent && let Some(vip) = sockets::sent_vip(ctx, &ctx.peer()) {
        ctx.set_peer(&vip.addr, vip.port);
        count(Counter::ReceiveReversed);
    }
    ALLOW
}

/// getpeername(2). accept(2) with a place for the address comes here too, on the new socket, which
/// has no state.
#[inline(always)]
pub(crate) fn getpeername<F: Family>(ctx: &Ctx<F>) -> i32 {
    let peer = ctx.peer();
    let mut vip = sockets::state(ctx).and_then(|state| sockets::connected_vip(state, &peer));
    if vip.is_none() && sockets::is_fallback() {
        vip = sockets::sent_vip(ctx, &peer);
    }
    if let Some(vip) = vip {
        ctx.set_peer(&vip.addr, vip.port);
        count(Counter::PeerReversed);
    }
    ALLOW
}
