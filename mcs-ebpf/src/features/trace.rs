//! Writes the decisions of the programs to a ring buffer. The agent attaches programs that do so while a trace runs.

use core::{hint::cold_path, mem::MaybeUninit};

use aya_ebpf::{
    Global,
    bindings::BPF_RB_NO_WAKEUP,
    btf_maps::{PerCpuArray, RingBuf},
    helpers::{
        bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, bpf_ktime_get_ns,
        generated::bpf_get_current_comm,
    },
    macros::btf_map,
};
use aya_log_ebpf::debug;
use mcs_common::{
    BackendRef, Counter, FrontendKey, Peer, TraceEvent,
    select::{Choice, FrontendMatch},
};

use crate::{
    maps::{STATES, load, store},
    packet::frame::bytes_of,
    per_cpu::Scratch,
    socket::context::{HookFamily, SocketContext},
};

/// 1 if the programs write their decisions. With 0 the verifier removes all code for that as dead code.
#[unsafe(no_mangle)]
static TRACE: Global<u8> = Global::new(0);

/// The agent sets its size.
#[btf_map(name = "trace_events")]
static EVENTS: RingBuf<TraceEvent, 4096> = RingBuf::new();
/// How many events found no room.
#[btf_map(name = "trace_lost")]
static LOST: PerCpuArray<u64, 1> = PerCpuArray::new();

const NOBODY: Peer = Peer::new(mcs_common::Address { addr: [0; 16] }, 0);
const NONE: BackendRef = BackendRef { id: 0, generation: 0 };

/// A connect goes to the backend that the context has by now.
#[inline(always)]
pub(super) fn connected<F: HookFamily>(
    ctx: &SocketContext<F>,
    vip: &Peer,
    frontend: &FrontendMatch,
    choice: &Choice,
) {
    if TRACE.load() != 0 {
        cold_path();
        let Choice { chosen, by_affinity, .. } = *choice;
        let reason = Counter::ConnectTranslated as u32;
        let decided = Decided { reason, frontend: frontend.index, chosen, by_affinity };
        translated(ctx, &decided);
        of_process(ctx, vip, &ctx.peer(), &decided);
    }
}

/// A datagram goes to the backend that the context has by now. The VIP is read again: here it would cost those that tell
/// nothing to keep it.
#[inline(always)]
pub(super) fn sent<F: HookFamily>(
    ctx: &SocketContext<F>,
    frontend: &FrontendMatch,
    chosen: BackendRef,
    by_affinity: bool,
) {
    if TRACE.load() != 0 {
        cold_path();
        let reason = Counter::SendTranslated as u32;
        let decided = Decided { reason, frontend: frontend.index, chosen, by_affinity };
        translated(ctx, &decided);
        let Some(state) = STATES.get_ptr(decided.frontend) else { return };
        // SAFETY: the pointer is to a value of the array.
        let FrontendKey { vip, port, .. } = unsafe { load(&raw const (*state).key) };
        of_process(ctx, &Peer::new(vip, port), &ctx.peer(), &decided);
    }
}

/// Logs the backend that a connect or a datagram goes to: its id, and the index of its frontend. The code of a log grows with
/// the path of its module and the name of its file.
#[inline(always)]
fn translated<F: HookFamily>(ctx: &SocketContext<F>, decided: &Decided) {
    debug!(ctx.inner(), "frontend {} to backend {}", decided.frontend, decided.chosen.id);
}

/// A connect or a datagram is refused. The context has its destination.
#[inline(always)]
pub(super) fn refused<F: HookFamily>(ctx: &SocketContext<F>, reason: Counter) {
    if TRACE.load() != 0 {
        cold_path();
        let decided =
            Decided { reason: reason as u32, frontend: 0, chosen: NONE, by_affinity: false };
        of_process(ctx, &ctx.peer(), &NOBODY, &decided);
    }
}

/// A flow begins: the one in `Scratch::flow`.
#[inline(always)]
pub(super) fn began(scratch: &Scratch) {
    if TRACE.load() != 0 {
        cold_path();
        let Scratch { flow, .. } = scratch;
        let backend = Peer::new(flow.to.dst, flow.to.dst_port);
        let (frontend, chosen) = (flow.frontend, flow.chosen);
        let reason = Counter::FlowCreated as u32;
        of_packet(scratch, &backend, &Decided { reason, frontend, chosen, by_affinity: false });
    }
}

/// A packet is refused, or passes as the first of its flow. The reason is a [`Counter`].
#[inline(always)]
pub(super) fn packet(scratch: &Scratch, reason: u32) {
    if TRACE.load() != 0 {
        cold_path();
        of_packet(
            scratch,
            &NOBODY,
            &Decided { reason, frontend: 0, chosen: NONE, by_affinity: false },
        );
    }
}

/// The fields of an event other than addresses.
struct Decided {
    /// A [`Counter`].
    reason: u32,
    /// Index into `states`, or 0.
    frontend: u32,
    chosen: BackendRef,
    by_affinity: bool,
}

#[inline(always)]
fn of_process<F: HookFamily>(
    ctx: &SocketContext<F>,
    vip: &Peer,
    backend: &Peer,
    decided: &Decided,
) {
    let protocol = ctx.frontend_key(vip).protocol;
    tell(decided, |event| {
        // SAFETY: the caller vouches for the pointer; the helpers take no other.
        unsafe {
            store(&raw mut (*event).vip, vip);
            store(&raw mut (*event).backend, backend);
            store(&raw mut (*event).client, &NOBODY);
            (&raw mut (*event).protocol).write(protocol);
            (&raw mut (*event).path).write(TraceEvent::SOCKET);
            (&raw mut (*event).process).write((bpf_get_current_pid_tgid() >> 32) as u32);
            (&raw mut (*event).cgroup).write(bpf_get_current_cgroup_id());
            bpf_get_current_comm((&raw mut (*event).comm).cast(), bytes_of::<[u64; 2]>());
        }
    });
}

#[inline(always)]
fn of_packet(scratch: &Scratch, backend: &Peer, decided: &Decided) {
    let tuple = &scratch.tuple;
    tell(decided, |event| {
        // SAFETY: the caller vouches for the pointer.
        unsafe {
            store(&raw mut (*event).vip, &Peer::new(tuple.dst, tuple.dst_port));
            store(&raw mut (*event).backend, backend);
            store(&raw mut (*event).client, &Peer::new(tuple.src, tuple.src_port));
            (&raw mut (*event).protocol).write(tuple.protocol);
            (&raw mut (*event).path).write(TraceEvent::PACKET);
            (&raw mut (*event).process).write(0);
            (&raw mut (*event).cgroup).write(0);
            store(&raw mut (*event).comm, &[0; 2]);
        }
    });
}

/// Adds an event, whose other fields `fill` writes. It writes them by words: LLVM calls a function to write many zeros, and Linux
/// 5.10 adds the frame of that to those of the callers, although it is dead code there. Nobody is woken: the reader looks again and again, which costs less than
/// to be woken by each of many events.
#[inline(always)]
fn tell(decided: &Decided, fill: impl FnOnce(*mut TraceEvent)) {
    let Some(mut entry) = EVENTS.reserve(0) else {
        if let Some(lost) = LOST.get_ptr_mut(0) {
            // SAFETY: the pointer is to this CPU's value of the map.
            unsafe { lost.write_volatile(lost.read_volatile() + 1) };
        }
        return;
    };
    let event = MaybeUninit::as_mut_ptr(&mut entry);
    // SAFETY: the pointer is to an event in the ring buffer; the helper takes no argument.
    unsafe {
        (&raw mut (*event).time_ns).write(bpf_ktime_get_ns());
        (&raw mut (*event).chosen).write(decided.chosen);
        (&raw mut (*event).frontend).write(decided.frontend);
        (&raw mut (*event).reason).write(decided.reason);
        (&raw mut (*event).by_affinity).write(u8::from(decided.by_affinity));
        (&raw mut (*event).pad).write(0);
    }
    fill(event);
    entry.submit(BPF_RB_NO_WAKEUP.into());
}
