//! Passive health: the outcome of the connects that these programs sent to a backend.
//!
//! Tracepoints tell it, for all sockets of the node. A SYN that is sent again and a reset are rare, so a connect that is
//! answered costs nothing. `inet_sock_set_state` is not rare: the agent attaches that program only while a backend fails.
//! Only backends with an entry in `health` are watched, which the agent makes. So clients can fill nothing.

use core::arch::asm;

use aya_ebpf::{
    helpers::bpf_get_socket_cookie, macros::btf_tracepoint, programs::BtfTracePointContext,
};
use mcs_common::{BackendRef, ClientFailures, HealthRecord};

use crate::{
    maps::{HEALTH, load, store},
    packet::clock::now_ns,
    socket::table,
};

/// `enum` in `include/net/tcp_states.h`.
const TCP_ESTABLISHED: u32 = 1;
const TCP_SYN_SENT: u32 = 2;
/// Where `struct sock` has `__sk_common.skc_state`, which is one byte (`include/net/sock.h`). The verifier refuses the
/// programs if no such field is there.
const SKC_STATE: usize = 18;

/// A socket of the kernel, which the verifier knows by its type.
type Socket = *const u8;

/// A backend that a socket connects to, and its record.
struct Watched {
    record: *mut HealthRecord,
    netns_cookie: u64,
    socket_cookie: u64,
}

/// Records a connect whose backend does not answer. It is attached only while a service asks for passive health.
#[btf_tracepoint(function = "tcp_retransmit_skb")]
#[expect(clippy::needless_pass_by_value, reason = "aya's macro passes the context by value")]
fn tcp_retransmit_skb(ctx: BtfTracePointContext) {
    not_answered(&ctx);
}

/// Records a connect that is reset. It is attached only while a service asks for passive health.
#[btf_tracepoint(function = "tcp_receive_reset")]
#[expect(clippy::needless_pass_by_value, reason = "aya's macro passes the context by value")]
fn tcp_receive_reset(ctx: BtfTracePointContext) {
    not_answered(&ctx);
}

/// Records a connect that is answered. It is attached only while a backend fails.
#[btf_tracepoint(function = "inet_sock_set_state")]
#[expect(clippy::needless_pass_by_value, reason = "aya's macro passes the context by value")]
fn inet_sock_set_state(ctx: BtfTracePointContext) {
    let (before, now): (u32, u32) = (ctx.arg(1), ctx.arg(2));
    if (before, now) == (TCP_SYN_SENT, TCP_ESTABLISHED)
        && let Some(watched) = watched(ctx.arg(0))
    {
        answered(watched.record);
    }
}

/// The kernel sends a segment again, or got a reset: a socket that connects has failed by it.
#[inline(always)]
fn not_answered(ctx: &BtfTracePointContext) {
    let socket: Socket = ctx.arg(0);
    // SAFETY: the kernel passes a socket, and the verifier checks the offset.
    let state = unsafe { socket.add(SKC_STATE).read_volatile() };
    if u32::from(state) == TCP_SYN_SENT
        && let Some(watched) = watched(socket)
    {
        failed(&watched);
    }
}

#[inline(always)]
fn answered(record: *mut HealthRecord) {
    let now = now_ns();
    // SAFETY: the pointer is to a value of the map, of whole words. If the map reuses it meanwhile, another backend counts as
    // answering for a moment.
    unsafe {
        let answered = &raw mut (*record).answered_ns;
        if now.wrapping_sub(answered.read_volatile()) >= HealthRecord::FRESH_NS {
            answered.write_volatile(now);
        }
    }
}

#[inline(always)]
fn failed(watched: &Watched) {
    let Watched { record, netns_cookie, socket_cookie } = *watched;
    // SAFETY: as in `answered`. Of two clients that take the same place at once, one has none.
    unsafe {
        asm!("lock *(u64 *)({failed} + 0) += {one}", failed = in(reg) &raw mut (*record).failed, one = in(reg) 1_u64);
        let known = load(record);
        let place = known.place_of(netns_cookie) % known.failures.len();
        let now = known.failures[place].failed(netns_cookie, socket_cookie, now_ns());
        store((&raw mut (*record).failures).cast::<ClientFailures>().add(place), &now);
    }
}

#[inline(always)]
fn watched(socket: Socket) -> Option<Watched> {
    // SAFETY: the helper takes a socket of the kernel in programs of tracepoints, since Linux 5.12.
    let socket_cookie = unsafe { bpf_get_socket_cookie(socket.cast_mut().cast()) };
    let connection = table::find(socket_cookie)?;
    // SAFETY: the pointer is to a value of the table, which the socket has.
    let (chosen, netns_cookie): (BackendRef, u64) =
        unsafe { ((&raw const (*connection).chosen).read_volatile(), (*connection).netns_cookie) };
    Some(Watched { record: HEALTH.get_ptr_mut(chosen)?, netns_cookie, socket_cookie })
}
