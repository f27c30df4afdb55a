//! connect(2), and sendto(2) with TCP fast open: a connection to a VIP goes to a backend.

use mcs_common::{Counter, Peer, Refusal, select::FrontendMatch};

use super::{
    affinity::choose,
    context::{ALLOW, HookFamily, SocketContext},
    lookup,
    refuse::refuse,
    state,
};
use crate::{
    counters::count,
    figures,
    trace::{self, Decided},
};

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
        figures::refused(frontend, Refusal::NoBackend);
        return refuse(ctx, Counter::RefusedNoBackend);
    };
    let connection = choice.connection(vip);
    state::connecting(ctx, &connection);
    ctx.set_peer(&connection.backend.addr, connection.backend.port);
    count(Counter::ConnectTranslated);
    figures::connected(frontend, choice.backend.column);
    let decided = Decided::new(Counter::ConnectTranslated, frontend.index, &choice);
    trace::connects(ctx, &connection.vip, &decided);
    ALLOW
}
