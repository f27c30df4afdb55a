//! The flow table: two entries a flow, each under the tuple of the packets that it translates.

use aya_ebpf::{bindings::BPF_NOEXIST, helpers::bpf_ktime_get_ns};
use mcs_common::{
    Counter, Flow, FlowFlags, FlowState, FlowsUsed, Tuple,
    select::{Choice, Frontend, recall},
};

use crate::{
    affinity,
    counters::count,
    maps::{ConfigMaps, FLOWS, FLOWS_USED, load},
};

/// Backends that are tried for one whose reply can be told from those of other flows.
const BACKENDS: u32 = 3;
/// Source ports that are tried after that.
const PORTS: u32 = 4;
/// Above what Linux takes by default (`ip_local_port_range`), so that no socket of the client is
/// likely to use it for the backend itself.
const FIRST_PORT: u32 = 61_000;

/// Whether there may be any flow: else packets to pods need no look.
#[inline(always)]
pub(crate) fn may_exist() -> bool {
    // SAFETY: the pointer is to the array's only value.
    FLOWS_USED.get_ptr(0).is_some_and(|used| unsafe { used.read_volatile() != FlowsUsed::NO })
}

/// What becomes of packets with this tuple.
#[inline(always)]
pub(crate) fn find(tuple: &Tuple) -> Option<*mut Flow> {
    FLOWS.get_ptr_mut(tuple)
}

/// Reads an entry.
#[inline(always)]
pub(crate) fn read(flow: *const Flow) -> Flow {
    // SAFETY: the pointer is to a value of the map. If it is evicted and reused meanwhile, one
    // packet goes astray, as one that is lost: the cost of an LRU map.
    unsafe { load(flow) }
}

/// Takes note of a packet: its TCP flags, and now and then the time. Then the other entry of the
/// flow is looked at too, so that both are evicted late, and made anew if it was evicted.
#[inline(always)]
pub(crate) fn touch(tuple: &Tuple, entry: *mut Flow, flow: &Flow, flags: u32) {
    let seen = mcs_common::Seen::after(flow.seen, flags);
    if seen != flow.seen {
        // SAFETY: as in `read`.
        unsafe { (&raw mut (*entry).seen).write_volatile(seen) };
    }
    // SAFETY: the helper takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    if now.saturating_sub(flow.last_seen_ns) < Flow::TOUCH_NS {
        return;
    }
    // SAFETY: as in `read`.
    unsafe { (&raw mut (*entry).last_seen_ns).write_volatile(now) };
    let other = flow.to.reversed();
    if FLOWS.get_ptr(other).is_none() {
        // It fails if another flow has the reply's tuple by now: then that one goes on.
        let _ = FLOWS.insert(other, counterpart(tuple, flow, now), BPF_NOEXIST.into());
    }
}

/// The entry for packets the other way.
#[inline(always)]
const fn counterpart(tuple: &Tuple, flow: &Flow, now: u64) -> Flow {
    Flow {
        to: tuple.reversed(),
        chosen: flow.chosen,
        frontend: flow.frontend,
        flags: flow.flags ^ FlowFlags::REPLY,
        last_seen_ns: now,
        seen: 0,
        pad: 0,
    }
}

/// Whether a client's packet with these TCP flags goes on with the flow that is there.
///
/// TCP stays with a backend that was removed, until it ends; a SYN, and UDP, goes to one that is
/// in the set.
#[inline(always)]
pub(crate) fn goes_on(flow: &Flow, flags: u32) -> bool {
    use mcs_common::Seen;

    use super::ip::protocol::TCP;

    if flow.is_reply() {
        return true;
    }
    let tcp = flow.to.protocol == TCP;
    if tcp && flags & (Seen::SYN | Seen::ACK) != Seen::SYN {
        return true;
    }
    if tcp {
        let replied = find(&flow.to.reversed()).map_or(0, |reply| read(reply).seen);
        if FlowState::of(TCP, flow.seen, replied).is_over() {
            return false;
        }
    }
    recall(&ConfigMaps, flow.frontend, flow.chosen).is_some()
}

/// Forgets a flow, so that another one can begin under the same tuple.
#[inline(always)]
pub(crate) fn forget(tuple: &Tuple, flow: &Flow) {
    // Absent is as good.
    let _ = FLOWS.remove(flow.to.reversed());
    let _ = FLOWS.remove(tuple);
}

/// Begins a flow of a client to a frontend: what its packets become.
#[inline(always)]
pub(crate) fn begin(tuple: &Tuple, frontend: &Frontend, flags: u32) -> Result<Flow, Counter> {
    // SAFETY: the helper takes no argument.
    let now = unsafe { bpf_ktime_get_ns() };
    mark_used();
    let spread = tuple.spread();
    let mut port = tuple.src_port;
    for attempt in 0..BACKENDS + PORTS {
        let nth = if attempt < BACKENDS { attempt } else { 0 };
        if attempt >= BACKENDS {
            let offset = (spread >> 16).wrapping_add(attempt * 7) % (65_536 - FIRST_PORT);
            port = (FIRST_PORT + offset) as u16;
        }
        let random = spread.wrapping_add(nth.wrapping_mul(0x5555_5556));
        let Some(choice) = affinity::choose_for_client(&tuple.src, frontend, random) else {
            return Err(Counter::PacketRefusedNoBackend);
        };
        let mut flow = wanted(tuple, port, &choice, frontend, now);
        if claim_reply(tuple, &flow, now) {
            if attempt >= BACKENDS {
                count(Counter::FlowPortChanged);
            }
            flow.seen = mcs_common::Seen::after(0, flags);
            return record(tuple, flow);
        }
    }
    Err(Counter::PacketRefusedCollision)
}

/// Packets to pods are looked up from now on. Before the flow is made: user space takes the mark
/// away when it sees none, and looks once more.
#[inline(always)]
fn mark_used() {
    if let Some(used) = FLOWS_USED.get_ptr_mut(0) {
        // SAFETY: as in `may_exist`.
        unsafe {
            if used.read_volatile() != FlowsUsed::YES {
                used.write_volatile(FlowsUsed::YES);
            }
        }
    }
}

#[inline(always)]
fn wanted(tuple: &Tuple, port: u16, choice: &Choice, frontend: &Frontend, now: u64) -> Flow {
    let backend = &choice.backend;
    let hairpin = backend.addr == tuple.src;
    // A pod takes no packet from its own address, so that one comes from the VIP, to which the pod
    // answers through us.
    let src = if hairpin { tuple.dst } else { tuple.src };
    Flow {
        to: Tuple::new(src, port, backend.addr, backend.port, tuple.protocol),
        chosen: choice.chosen,
        frontend: frontend.index,
        flags: if hairpin { FlowFlags::HAIRPIN } else { 0 },
        last_seen_ns: now,
        seen: 0,
        pad: 0,
    }
}

/// Makes the entry for replies, unless another flow that lives has it.
#[inline(always)]
fn claim_reply(tuple: &Tuple, flow: &Flow, now: u64) -> bool {
    let reply = counterpart(tuple, flow, now);
    let key = flow.to.reversed();
    if FLOWS.insert(key, reply, BPF_NOEXIST.into()).is_ok() {
        return true;
    }
    let Some(existing) = find(&key) else { return false };
    let known = read(existing);
    if known.to != reply.to && is_alive(&known, now) {
        return false;
    }
    let _ = FLOWS.remove(key);
    FLOWS.insert(key, reply, BPF_NOEXIST.into()).is_ok()
}

/// Whether a flow goes on, by its entry for replies.
#[inline(always)]
fn is_alive(reply: &Flow, now: u64) -> bool {
    let mut last_seen = reply.last_seen_ns;
    let mut seen = 0;
    if let Some(client) = find(&reply.to.reversed()) {
        let client = read(client);
        seen = client.seen;
        if client.last_seen_ns > last_seen {
            last_seen = client.last_seen_ns;
        }
    }
    let protocol = reply.to.protocol;
    let state = FlowState::of(protocol, seen, reply.seen);
    !state.is_over() && now.saturating_sub(last_seen) < state.timeout_ns(protocol)
}

/// Makes the client's entry. Another CPU may have begun the same flow meanwhile: then its choice
/// stands.
#[inline(always)]
fn record(tuple: &Tuple, flow: Flow) -> Result<Flow, Counter> {
    if FLOWS.insert(tuple, flow, BPF_NOEXIST.into()).is_ok() {
        count(Counter::FlowCreated);
        return Ok(flow);
    }
    let Some(first) = find(tuple) else { return Err(Counter::PacketDroppedFailed) };
    let first = read(first);
    if first.to != flow.to {
        let _ = FLOWS.remove(flow.to.reversed());
    }
    Ok(first)
}
