//! The flow table: two entries a flow, each under the tuple of the packets that it translates.
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "what is passed by value is copied to the stack, which has no room for it"
)]

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::bpf_ktime_get_ns,
};
use mcs_common::{
    Counter, FRONTEND_AFFINITY_CLIENT_IP, Flow, FlowFlags, FlowState, FlowsUsed, Seen, Tuple,
    select::{Choice, recall},
};

use super::{ip::protocol, scratch::Scratch};
use crate::{
    affinity,
    counters::count,
    maps::{ConfigMaps, FLOWS, FLOWS_USED, load_into},
};

/// Backends that are tried for one whose reply can be told from those of other flows.
const BACKENDS: u32 = 3;
/// Source ports that are tried after that.
const PORTS: u32 = 4;
/// Attempts to begin a flow.
pub(crate) const ATTEMPTS: u32 = BACKENDS + PORTS;
/// Above what Linux takes by default (`ip_local_port_range`), so that no socket of the client is
/// likely to use it for the backend itself.
const FIRST_PORT: u32 = 61_000;

/// Whether there may be any flow: else packets to pods need no look.
#[inline(always)]
pub(crate) fn may_exist() -> bool {
    // SAFETY: the pointer is to the array's only value.
    FLOWS_USED.get_ptr(0).is_some_and(|used| unsafe { used.read_volatile() != FlowsUsed::NO })
}

/// An entry of the table. If it is evicted and reused while it is looked at, one packet goes
/// astray, like one that is lost, and what is noted of it is noted of another flow: the cost of an
/// LRU map.
#[derive(Clone, Copy)]
pub(crate) struct Entry(*mut Flow);

/// The entry for packets with this tuple.
#[inline(always)]
pub(crate) fn find(tuple: &Tuple) -> Option<Entry> {
    FLOWS.get_ptr_mut(tuple).map(Entry)
}

impl Entry {
    #[inline(always)]
    pub(crate) fn read(self, flow: &mut Flow) {
        // SAFETY: the pointer is to a value of the map.
        unsafe { load_into(flow, self.0) };
    }

    #[inline(always)]
    fn read_to(self, tuple: &mut Tuple) {
        // SAFETY: as in `read`.
        unsafe { load_into(tuple, &raw const (*self.0).to) };
    }

    #[inline(always)]
    fn seen(self) -> u32 {
        // SAFETY: as in `read`.
        unsafe { ptr::read_volatile(&raw const (*self.0).seen) }
    }

    #[inline(always)]
    fn last_seen_ns(self) -> u64 {
        // SAFETY: as in `read`.
        unsafe { ptr::read_volatile(&raw const (*self.0).last_seen_ns) }
    }
}

/// What stands under the key for packets the other way.
enum Other {
    Nothing,
    /// The other entry of the flow.
    Ours(Entry),
    /// An entry of another flow, to which this one has given way.
    Anothers,
}

/// The other entry of the flow in `scratch`.
#[inline(always)]
fn other(scratch: &mut Scratch) -> Other {
    scratch.other_key = scratch.flow.to.reversed();
    let Some(entry) = find(&scratch.other_key) else { return Other::Nothing };
    entry.read_to(&mut scratch.spare);
    if scratch.spare == scratch.tuple.reversed() { Other::Ours(entry) } else { Other::Anothers }
}

/// Takes note of a packet of the flow: its TCP flags, and now and then the time. Then the other
/// entry is looked at too, so that neither is evicted while the other is used, and made anew if it
/// was. Returns whether the flow still has its place.
#[inline(always)]
pub(crate) fn touch(scratch: &mut Scratch, entry: Entry, flags: u32) -> bool {
    let seen = Seen::after(scratch.flow.seen, flags);
    if seen != scratch.flow.seen {
        // SAFETY: the pointer is to a value of the map.
        unsafe { (&raw mut (*entry.0).seen).write_volatile(seen) };
    }
    let now = now_ns();
    if now.saturating_sub(scratch.flow.last_seen_ns) < Flow::TOUCH_NS {
        return true;
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*entry.0).last_seen_ns).write_volatile(now) };
    match other(scratch) {
        Other::Ours(_) => true,
        Other::Anothers => false,
        Other::Nothing => {
            scratch.pair(now);
            // Where it fails, another packet of the flow has just made it, or there is no room: no
            // reason to forget the flow.
            FLOWS.insert(&scratch.other_key, &scratch.other, BPF_NOEXIST.into()).is_ok()
                || !matches!(other(scratch), Other::Anothers)
        }
    }
}

/// Puts the flow that a client's packet with these TCP flags goes on with in `scratch`, if there is
/// one.
#[inline(always)]
pub(crate) fn find_for_client(scratch: &mut Scratch, flags: u32) -> bool {
    let Some(entry) = find(&scratch.tuple) else { return false };
    entry.read(&mut scratch.flow);
    if goes_on(scratch, flags) && touch(scratch, entry, flags) {
        return true;
    }
    forget(scratch);
    false
}

/// Puts the flow that a packet to a pod answers in `scratch`, if there is one.
#[inline(always)]
pub(crate) fn find_for_pod(scratch: &mut Scratch, flags: u32) -> Option<Entry> {
    let entry = find(&scratch.tuple)?;
    entry.read(&mut scratch.flow);
    // A pod's reply to itself was translated when it came from the pod.
    if scratch.flow.flags & (FlowFlags::REPLY | FlowFlags::HAIRPIN) != FlowFlags::REPLY {
        return None;
    }
    // A connection begins: not this one, if it is over, since the client's SYN would have begun it
    // anew. The client has called the backend directly, from the same port.
    if flags & Seen::SYN != 0 && scratch.flow.to.protocol == protocol::TCP {
        let client = match other(scratch) {
            Other::Ours(client) => client.seen(),
            Other::Nothing | Other::Anothers => 0,
        };
        if FlowState::of(protocol::TCP, client, scratch.flow.seen).is_over() {
            return None;
        }
    }
    Some(entry)
}

/// Whether a packet with these TCP flags goes on with the flow that is in `scratch`.
///
/// TCP stays with a backend that was removed until it ends; a SYN, and UDP, goes to one that is in
/// the set.
#[inline(always)]
fn goes_on(scratch: &mut Scratch, flags: u32) -> bool {
    if scratch.flow.is_reply() {
        return true;
    }
    if scratch.flow.to.protocol == protocol::TCP {
        if flags & (Seen::SYN | Seen::ACK) != Seen::SYN {
            return true;
        }
        let replied = match other(scratch) {
            Other::Nothing => 0,
            Other::Ours(reply) => reply.seen(),
            Other::Anothers => return false,
        };
        if FlowState::of(protocol::TCP, scratch.flow.seen, replied).is_over() {
            return false;
        }
    }
    let Some(choice) = recall(&ConfigMaps, scratch.flow.frontend, scratch.flow.chosen) else {
        return false;
    };
    // Config maps that had to be made anew count from the start again, and flows outlive them.
    let to = &scratch.flow.to;
    choice.backend.addr == to.dst && choice.backend.port == to.dst_port
}

/// Forgets the flow in `scratch`, so that another one can begin under the same tuple.
#[inline(always)]
fn forget(scratch: &mut Scratch) {
    // Absent is as good. What a UDP backend has yet to answer still comes from the VIP.
    if scratch.tuple.protocol == protocol::TCP
        && let Other::Ours(_) = other(scratch)
    {
        let _ = FLOWS.remove(&scratch.other_key);
    }
    let _ = FLOWS.remove(&scratch.tuple);
}

/// Begins a flow of a client to the frontend in `scratch`, unless its replies could not be told from
/// those of another one: then another attempt may find a way.
#[inline(always)]
pub(crate) fn begin(scratch: &mut Scratch, attempt: u32, flags: u32) -> Result<bool, Counter> {
    let now = now_ns();
    let spread = scratch.tuple.spread();
    let mut random = spread;
    let mut port = scratch.tuple.src_port;
    if attempt < BACKENDS {
        // With affinity it would be the same backend again.
        if attempt > 0 && scratch.frontend.state.flags & FRONTEND_AFFINITY_CLIENT_IP != 0 {
            return Ok(false);
        }
        random = random.wrapping_add(attempt.wrapping_mul(u32::MAX / BACKENDS));
    } else {
        let offset = (spread >> 16).wrapping_add(attempt * 7) % (65_536 - FIRST_PORT);
        #[expect(clippy::cast_possible_truncation, reason = "less than 65536")]
        let other = (FIRST_PORT + offset) as u16;
        port = other;
    }
    let Some(choice) = affinity::choose_for_client(&scratch.tuple.src, &scratch.frontend, random)
    else {
        return Err(Counter::PacketRefusedNoBackend);
    };
    mark_used();
    scratch.choose(port, &choice, now);
    if !claim_reply(scratch, now)? {
        return Ok(false);
    }
    if attempt >= BACKENDS {
        count(Counter::FlowPortChanged);
    }
    scratch.flow.seen = Seen::after(0, flags);
    record(scratch)
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

impl Scratch {
    /// Makes `flow` the client's entry of a new flow.
    #[inline(always)]
    fn choose(&mut self, port: u16, choice: &Choice, now: u64) {
        let (tuple, backend) = (&self.tuple, &choice.backend);
        let hairpin = backend.addr == tuple.src;
        // A pod takes no packet from its own address, so that one comes from the VIP, to which the
        // pod answers through us.
        let src = if hairpin { tuple.dst } else { tuple.src };
        self.flow.to =
            Tuple::new(src, port, backend.addr, backend.port, tuple.protocol, tuple.device);
        self.flow.chosen = choice.chosen;
        self.flow.frontend = self.frontend.index;
        self.flow.flags = if hairpin { FlowFlags::HAIRPIN } else { 0 };
        self.flow.last_seen_ns = now;
        self.flow.seen = 0;
        self.flow.pad = 0;
    }

    /// Makes `other` the entry for packets the other way.
    #[inline(always)]
    fn pair(&mut self, now: u64) {
        self.other_key = self.flow.to.reversed();
        self.other.to = self.tuple.reversed();
        self.other.chosen = self.flow.chosen;
        self.other.frontend = self.flow.frontend;
        self.other.flags = self.flow.flags ^ FlowFlags::REPLY;
        self.other.last_seen_ns = now;
        self.other.seen = 0;
        self.other.pad = 0;
    }
}

/// Makes the entry for replies, unless another flow that lives has it.
#[inline(always)]
fn claim_reply(scratch: &mut Scratch, now: u64) -> Result<bool, Counter> {
    scratch.pair(now);
    if FLOWS.insert(&scratch.other_key, &scratch.other, BPF_NOEXIST.into()).is_ok() {
        return Ok(true);
    }
    if let Some(existing) = find(&scratch.other_key) {
        existing.read_to(&mut scratch.spare);
        if scratch.spare != scratch.other.to && is_alive(scratch, existing, now) {
            return Ok(false);
        }
    }
    match FLOWS.insert(&scratch.other_key, &scratch.other, BPF_ANY.into()) {
        Ok(()) => Ok(true),
        Err(_) => Err(Counter::PacketDroppedFailed),
    }
}

/// Whether the rival flow goes on, by its entry for replies.
#[inline(always)]
fn is_alive(scratch: &mut Scratch, reply: Entry, now: u64) -> bool {
    let mut last_seen = reply.last_seen_ns();
    let mut seen = 0;
    scratch.spare = scratch.spare.reversed();
    if let Some(client) = find(&scratch.spare) {
        seen = client.seen();
        if client.last_seen_ns() > last_seen {
            last_seen = client.last_seen_ns();
        }
    }
    let protocol = scratch.spare.protocol;
    let state = FlowState::of(protocol, seen, reply.seen());
    !state.is_over() && now.saturating_sub(last_seen) < state.timeout_ns(protocol)
}

/// Makes the client's entry. Another CPU may have begun the same flow meanwhile: then its choice
/// stands.
#[inline(always)]
fn record(scratch: &mut Scratch) -> Result<bool, Counter> {
    if FLOWS.insert(&scratch.tuple, &scratch.flow, BPF_NOEXIST.into()).is_ok() {
        count(Counter::FlowCreated);
        return Ok(true);
    }
    let Some(first) = find(&scratch.tuple) else { return Err(Counter::PacketDroppedFailed) };
    first.read_to(&mut scratch.spare);
    if scratch.spare != scratch.flow.to {
        let _ = FLOWS.remove(&scratch.other_key);
    }
    first.read(&mut scratch.flow);
    Ok(true)
}

#[inline(always)]
pub(super) fn now_ns() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_ktime_get_ns() }
}
