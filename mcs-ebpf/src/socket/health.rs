//! Passive health: what becomes of the connects that these programs sent to a backend.
//!
//! Only backends with an entry in `health` are watched, which the agent makes. So clients can fill nothing. The program
//! answers no question of the kernel: what other `sock_ops` programs reply stands.

use core::ptr;

use aya_ebpf::{
    bindings::{
        BPF_SOCK_OPS_RTO_CB, BPF_SOCK_OPS_RTO_CB_FLAG, BPF_SOCK_OPS_STATE_CB,
        BPF_SOCK_OPS_STATE_CB_FLAG, BPF_SOCK_OPS_TCP_CONNECT_CB, bpf_sock_ops,
    },
    helpers::{bpf_get_socket_cookie, bpf_sock_ops_cb_flags_set},
    programs::SockOpsContext,
};
use mcs_common::{BackendRef, HealthRecord};

use super::table;
use crate::{
    maps::{HEALTH, load, store},
    packet::clock::tick_ns,
};

/// `enum` in `include/net/tcp_states.h`.
const TCP_ESTABLISHED: u32 = 1;
const TCP_SYN_SENT: u32 = 2;
const TCP_CLOSE: u32 = 7;
/// The events that a connect to a backend asks for.
const EVENTS: u32 = BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;

/// A backend that a socket connects to, and its record.
struct Watched {
    record: *mut HealthRecord,
    netns_cookie: u64,
}

/// The kernel runs this for every TCP socket of the cgroup, several times for each connect.
#[inline(always)]
pub(crate) fn watch(ctx: &SockOpsContext) -> u32 {
    let ops = ctx.ops;
    // SAFETY: the context is the one the program was called with. Volatile as in `SocketContext`.
    let op = unsafe { ptr::read_volatile(&raw const (*ops).op) };
    match op {
        BPF_SOCK_OPS_TCP_CONNECT_CB => {
            // Whether its backend is watched takes longer to find out, and is asked once.
            if table::has(cookie(ops)) {
                ask_for_events(ops);
            }
        }
        BPF_SOCK_OPS_STATE_CB => state_changed(ops),
        BPF_SOCK_OPS_RTO_CB => not_answered(ops),
        _ => {}
    }
    1
}

/// Asks beside what other programs ask for. Nothing is taken back later: another program may have asked for the same.
#[inline(always)]
fn ask_for_events(ops: *mut bpf_sock_ops) {
    // SAFETY: as in `watch`.
    unsafe {
        let asked = ptr::read_volatile(&raw const (*ops).bpf_sock_ops_cb_flags);
        bpf_sock_ops_cb_flags_set(ops, (asked | EVENTS).cast_signed());
    }
}

/// A connect ends: the backend accepts it, or resets it. Without a segment from there, the client ended it, or a router
/// said that there is no way.
#[inline(always)]
fn state_changed(ops: *mut bpf_sock_ops) {
    // SAFETY: as in `watch`.
    let [before, now, ..] = unsafe { arguments(ops) };
    if before != TCP_SYN_SENT {
        return;
    }
    match now {
        TCP_ESTABLISHED => {
            if let Some(Watched { record, .. }) = watched(ops) {
                answered(record);
            }
        }
        TCP_CLOSE => {
            // SAFETY: as in `watch`.
            let segments = unsafe { ptr::read_volatile(&raw const (*ops).segs_in) };
            if segments > 0 {
                failed(ops);
            }
        }
        _ => {}
    }
}

/// The kernel is about to send a segment again. The second time for a SYN counts: 2 seconds after the first one since
/// Linux 6.5 (`tcp_syn_linear_timeouts`), and 3 seconds before.
#[inline(always)]
fn not_answered(ops: *mut bpf_sock_ops) {
    // SAFETY: as in `watch`.
    let ([sent_again, ..], state) =
        unsafe { (arguments(ops), ptr::read_volatile(&raw const (*ops).state)) };
    if state == TCP_SYN_SENT && sent_again == 1 {
        failed(ops);
    }
}

/// The first two arguments of an event.
///
/// # Safety
/// `ops` is the context of the program.
#[inline(always)]
unsafe fn arguments(ops: *const bpf_sock_ops) -> [u32; 2] {
    // SAFETY: the caller vouches for the context.
    unsafe {
        let arguments = (&raw const (*ops).__bindgen_anon_1).cast::<u32>();
        [ptr::read_volatile(arguments), ptr::read_volatile(arguments.add(1))]
    }
}

#[inline(always)]
fn answered(record: *mut HealthRecord) {
    let now = tick_ns();
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
fn failed(ops: *mut bpf_sock_ops) {
    let Some(Watched { record, netns_cookie }) = watched(ops) else { return };
    // SAFETY: as in `answered`. Of two clients that take the same place at once, one is not counted.
    unsafe {
        let known = load(record);
        let place = known.place_of(netns_cookie) % known.failures.len();
        let now = known.failures[place].failed(netns_cookie, tick_ns());
        store((&raw mut (*record).failures).cast::<mcs_common::ClientFailures>().add(place), &now);
    }
}

#[inline(always)]
fn cookie(ops: *mut bpf_sock_ops) -> u64 {
    // SAFETY: the helper takes the context itself.
    unsafe { bpf_get_socket_cookie(ops.cast()) }
}

#[inline(always)]
fn watched(ops: *mut bpf_sock_ops) -> Option<Watched> {
    let connection = table::find(cookie(ops))?;
    // SAFETY: the pointer is to a value of the table, which the socket has.
    let (chosen, netns_cookie): (BackendRef, u64) =
        unsafe { ((&raw const (*connection).chosen).read_volatile(), (*connection).netns_cookie) };
    Some(Watched { record: HEALTH.get_ptr_mut(chosen)?, netns_cookie })
}
