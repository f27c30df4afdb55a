//! What the programs could lack and still translate every VIP. The core calls one function for each event; each calls the features
//! in order. A feature has a constant of its own with which the verifier removes its code, or programs of its own.

mod figures;
mod passive_health;
mod trace;

use mcs_common::{
    Address, BackendRef, Counter, Peer,
    select::{Choice, FrontendMatch},
};

use crate::{
    per_cpu::Scratch,
    socket::context::{HookFamily, SocketContext},
};

/// A connect goes to the backend that the context has by now.
#[inline(always)]
pub(crate) fn connected<F: HookFamily>(
    ctx: &SocketContext<F>,
    vip: &Peer,
    frontend: &FrontendMatch,
    choice: &Choice,
) {
    figures::connected(frontend, choice);
    trace::connected(ctx, vip, frontend, choice);
}

/// A socket that sends without connecting gets a backend.
#[inline(always)]
pub(crate) fn pinned(frontend: &FrontendMatch, choice: &Choice) {
    figures::connected(frontend, choice);
}

/// A datagram goes to the backend that the context has by now.
#[inline(always)]
pub(crate) fn sent<F: HookFamily>(
    ctx: &SocketContext<F>,
    frontend: &FrontendMatch,
    chosen: BackendRef,
    by_affinity: bool,
) {
    trace::sent(ctx, frontend, chosen, by_affinity);
}

/// A connect or a datagram finds no backend of its frontend. It is refused next.
#[inline(always)]
pub(crate) fn no_backend(frontend: &FrontendMatch) {
    figures::no_backend(frontend);
}

/// A connect or a datagram finds no such port of a VIP. It is refused next.
#[inline(always)]
pub(crate) fn unknown_port(vip: &Address) {
    figures::unknown_port(vip);
}

/// A connect or a datagram is refused. The context has its destination.
#[inline(always)]
pub(crate) fn refused<F: HookFamily>(ctx: &SocketContext<F>, reason: Counter) {
    trace::refused(ctx, reason);
}

/// The flow in the scratch memory begins.
#[inline(always)]
pub(crate) fn began(scratch: &Scratch) {
    figures::began(scratch);
    trace::began(scratch);
}

/// A packet of a pod gets no backend. It is refused next. The reason is a [`Counter`].
#[inline(always)]
pub(crate) fn undeliverable(scratch: &Scratch, reason: u32) {
    figures::undeliverable(scratch, reason);
}

/// A packet is refused, or passes as the first of its flow. The reason is a [`Counter`].
#[inline(always)]
pub(crate) fn untranslated(scratch: &Scratch, reason: u32) {
    trace::packet(scratch, reason);
}
