//! connect(2), and TCP fast open.

use aya_log_ebpf::debug;
use mcs_common::{Counter, Peer, select::FrontendMatch};

use crate::{
    affinity::choose,
    context::{ALLOW, Ctx, Family, refuse},
    counters::count,
    destination, sockets,
};

/// Sends a connection to a VIP to one of its backends, or refuses it.
#[inline(always)]
pub(crate) fn connect<F: Family>(ctx: &Ctx<F>) -> i32 {
    let destination = ctx.peer();
    match destination::frontend(ctx, &destination, true) {
        Ok(frontend) => translate(ctx, destination, &frontend),
        Err(verdict) => verdict,
    }
}

#[inline(always)]
fn translate<F: Family>(ctx: &Ctx<F>, vip: Peer, frontend: &FrontendMatch) -> i32 {
    let Some(choice) = choose(ctx, frontend) else {
        return refuse(Counter::RefusedNoBackend);
    };
    let connection = choice.connection(vip);
    sockets::connecting(ctx, &connection);
    ctx.set_peer(&connection.backend.addr, connection.backend.port);
    count(Counter::ConnectTranslated);
    debug!(ctx.inner(), "connect: frontend {} to backend {}", frontend.index, choice.chosen.id);
    ALLOW
}
