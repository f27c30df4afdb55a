//! connect(2), and sendto(2) with TCP fast open: a connection to a VIP goes to a backend.

use mcs_common::{Counter, Peer, select::FrontendMatch};

use super::{
    affinity::choose,
    context::{ALLOW, HookFamily, SocketContext},
    lookup,
    refuse::refuse,
    state,
};
use crate::{counters::count, features};

/// Sends a connection to a VIP to one of its backends, or refuses it.
#[inline(always)]
pub(crate) fn connect<F: HookFamily>(ctx: &SocketContext<F>) -> i32 {
    let destination = ctx.peer();
    match lookup::frontend(ctx, &destination, true) {
        Ok(frontend) => translate(ctx, destination, &frontend),
        Err(verdict) => verdict,
    }
}

#[inline(always)]
fn translate<F: HookFamily>(ctx: &SocketContext<F>, vip: Peer, frontend: &FrontendMatch) -> i32 {
    let Some(choice) = choose(ctx, frontend) else {
        features::no_backend(frontend);
        return refuse(ctx, Counter::RefusedNoBackend);
    };
    let connection = choice.connection(vip);
    state::connecting(ctx, &connection);
    ctx.set_peer(&connection.backend.addr, connection.backend.port);
    count(Counter::ConnectTranslated);
    features::connected(ctx, &connection.vip, frontend, &choice);
    ALLOW
}
