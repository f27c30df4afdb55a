//! Finds, begins and ends flows. A flow has two entries in the flow table, one for each direction,
//! each under the tuple of the packets that it translates.
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "arguments by value are copied to the stack, which has no room for them"
)]

use core::{arch::asm, ptr};

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use mcs_common::{
    BackendRef, Counter, Flow, FlowEvictions, FlowFlags, FlowState, FlowsUsed, FrontendKey, Seen,
    Tuple, VipMode,
    select::{Arrays as _, Choice, recall},
};

use super::{affinity, answer::Answer, clock::tick_ns, header::protocol, rewrite::header_ports};
use crate::{
    affinity::has_affinity,
    counters::count,
    maps::{ConfigMaps, FLOW_EVICTIONS, FLOWS, FLOWS_USED, load, load_into},
    per_cpu::Scratch,
};

/// How many backends a new flow tries with its own source port. A backend does not serve if another
/// flow has the same tuple of replies.
const BACKEND_ATTEMPTS: u32 = 3;
/// How many other source ports it tries after that.
const PORT_ATTEMPTS: u32 = 4;
/// The number of attempts to begin a flow.
pub(crate) const ATTEMPTS: u32 = BACKEND_ATTEMPTS + PORT_ATTEMPTS;
/// The lowest of the other source ports. It is above Linux's default `ip_local_port_range`, so the
/// client's own connections to the backend rarely have such a port.
const FIRST_PORT: u32 = 61_000;

/// How long after a packet of a backend its flow is known to be in use, in nanoseconds. A backend answers the first
/// SYN of a direct connection for a flow that is idle, and the client sends the next SYN after a second.
const ANSWERED_NS: u64 = 3_000_000_000;

/// Whether the flow table may have entries. If not, `to_pod` passes every packet, and `from_pod` every packet to a backend.
#[inline(always)]
pub(crate) fn may_exist() -> bool {
    // SAFETY: the pointer is to the array's only value.
    FLOWS_USED.get_ptr(0).is_some_and(|used| unsafe { used.read_volatile() != FlowsUsed::NO })
}

/// A pointer to an entry of the flow table.
///
/// The LRU map may evict and reuse the entry at any time. One packet then goes to a wrong place, as if
/// it were lost, and another flow gets its flags and time.
#[derive(Clone, Copy)]
pub(crate) struct FlowPointer(*mut Flow);

/// Finds the entry for packets with this tuple.
#[inline(always)]
pub(crate) fn find(tuple: &Tuple) -> Option<FlowPointer> {
    FLOWS.get_ptr_mut(tuple).map(FlowPointer)
}

impl FlowPointer {
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

    /// Bits of [`FlowFlags`].
    #[inline(always)]
    pub(crate) fn flags(self) -> u32 {
        // SAFETY: as in `read`.
        unsafe { ptr::read_volatile(&raw const (*self.0).flags) }
    }

    /// [`Flow::to`], in the map.
    #[inline(always)]
    pub(crate) const fn to(self) -> *const Tuple {
        // SAFETY: as in `read`.
        unsafe { &raw const (*self.0).to }
    }

    /// Both ports of [`Flow::to`], as a header holds them.
    #[inline(always)]
    pub(crate) fn ports(self) -> u32 {
        // SAFETY: as in `read`.
        let (src, dst) = unsafe {
            let to = self.to();
            (
                (&raw const (*to).src_port).read_volatile(),
                (&raw const (*to).dst_port).read_volatile(),
            )
        };
        header_ports(src, dst)
    }

    /// Whether [`touch`] would write nothing after a packet with these TCP flags.
    #[inline(always)]
    pub(crate) fn stays(self, flags: u32) -> bool {
        let seen = self.seen();
        Seen::after(seen, flags) == seen && !Flow::is_outdated(self.last_seen_ns(), tick_ns())
    }

    /// Whether the flow's backend still serves its frontend. The tuple is of a client's packet.
    #[inline(always)]
    pub(crate) fn is_served(self, tuple: &Tuple) -> bool {
        // SAFETY: as in `read`.
        let (frontend, chosen, to) = unsafe {
            let frontend = ptr::read_volatile(&raw const (*self.0).frontend);
            (frontend, load(&raw const (*self.0).chosen), load(&raw const (*self.0).to))
        };
        // A frontend that was removed has left its index to another one, or to none.
        let key = FrontendKey::new(tuple.dst, tuple.dst_port, tuple.protocol);
        ConfigMaps.state(frontend).is_some_and(|state| state.key == key)
            && serves(frontend, chosen, &to)
    }
}

/// The entry under a flow's key for the opposite direction.
enum OppositeEntry {
    Absent,
    /// The entry belongs to the same flow.
    SameFlow(FlowPointer),
    /// Another flow has taken the key.
    OtherFlow,
}

/// Finds the entry for the opposite direction of the flow in `scratch`.
#[inline(always)]
fn find_opposite(scratch: &mut Scratch) -> OppositeEntry {
    scratch.opposite_key = scratch.flow.to.reversed();
    let Some(entry) = find(&scratch.opposite_key) else { return OppositeEntry::Absent };
    entry.read_to(&mut scratch.spare);
    if scratch.spare == scratch.tuple.reversed() {
        OppositeEntry::SameFlow(entry)
    } else {
        OppositeEntry::OtherFlow
    }
}

/// Records the TCP flags of a packet of the flow, and the time if that is due.
///
/// With the time it also looks up the opposite entry, so that the LRU map does not evict one while
/// the other is in use, and inserts a missing one again. Returns `false` if another flow has taken
/// the opposite key.
#[inline(always)]
pub(crate) fn touch(scratch: &mut Scratch, entry: FlowPointer, flags: u32) -> bool {
    let seen = Seen::after(scratch.flow.seen, flags);
    if seen != scratch.flow.seen {
        // SAFETY: the pointer is to a value of the map.
        unsafe { (&raw mut (*entry.0).seen).write_volatile(seen) };
    }
    let now = tick_ns();
    if !Flow::is_outdated(scratch.flow.last_seen_ns, now) {
        return true;
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*entry.0).last_seen_ns).write_volatile(now) };
    match find_opposite(scratch) {
        OppositeEntry::SameFlow(_) => true,
        OppositeEntry::OtherFlow => false,
        OppositeEntry::Absent => {
            scratch.fill_opposite(now);
            // It fails if another packet of the flow has just inserted it, or if there is no room.
            // Neither is a reason to forget the flow.
            FLOWS.insert(&scratch.opposite_key, &scratch.opposite, BPF_NOEXIST.into()).is_ok()
                || !matches!(find_opposite(scratch), OppositeEntry::OtherFlow)
        }
    }
}

/// The flow of a client's packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientFlow {
    /// The packet continues it.
    Found,
    /// The packet is no part of it, and it has been deleted.
    Ended,
    /// There is none.
    Unknown,
}

/// Finds the flow that a client's packet with these TCP flags continues and stores it in
/// `Scratch::flow`.
#[inline(always)]
pub(crate) fn find_for_client(scratch: &mut Scratch, flags: u32) -> ClientFlow {
    let Some(entry) = find(&scratch.tuple) else { return ClientFlow::Unknown };
    entry.read(&mut scratch.flow);
    if continues(scratch, flags) && touch(scratch, entry, flags) {
        return ClientFlow::Found;
    }
    forget(scratch);
    ClientFlow::Ended
}

/// Whether a packet with these TCP flags and without a flow belongs to a connection that began before the
/// agent served the VIP.
#[inline(always)]
pub(crate) fn is_foreign(scratch: &Scratch, flags: u32) -> bool {
    scratch.tuple.protocol == protocol::TCP && !opens(flags) && !may_be_evicted()
}

/// Whether the kernel may have evicted flows lately.
#[inline(always)]
fn may_be_evicted() -> bool {
    let Some(evictions) = FLOW_EVICTIONS.get_ptr(0) else { return true };
    // SAFETY: the pointer is to the array's only value.
    let latest_ns = unsafe { (&raw const (*evictions).latest_ns).read_volatile() };
    FlowEvictions::may_explain(latest_ns, tick_ns())
}

/// Begins the flow of a connection that passes unchanged. With the flow it goes on to pass when the table
/// fills later.
#[inline(always)]
pub(crate) fn pass(scratch: &mut Scratch, flags: u32) {
    let now = tick_ns();
    mark_used(now);
    scratch.flow.to = scratch.tuple;
    scratch.flow.chosen = BackendRef { id: 0, generation: 0 };
    scratch.flow.frontend = 0;
    scratch.flow.flags = FlowFlags::PASSED;
    scratch.flow.last_seen_ns = now;
    scratch.flow.seen = Seen::after(0, flags);
    scratch.flow.pad = 0;
    scratch.fill_opposite(now);
    // If there is no room for them, the next packet tries again.
    let _ = FLOWS.insert(&scratch.opposite_key, &scratch.opposite, BPF_NOEXIST.into());
    let _ = FLOWS.insert(&scratch.tuple, &scratch.flow, BPF_NOEXIST.into());
}

/// Finds the flow that a packet to a pod answers and stores it in `Scratch::flow`.
#[inline(always)]
pub(crate) fn find_for_pod(scratch: &mut Scratch, flags: u32) -> Option<FlowPointer> {
    let entry = find(&scratch.tuple)?;
    entry.read(&mut scratch.flow);
    // A hairpin's reply was translated when the pod sent it.
    if scratch.flow.flags & (FlowFlags::REPLY | FlowFlags::HAIRPIN) != FlowFlags::REPLY {
        return None;
    }
    let is_syn = flags & Seen::SYN != 0;
    let (is_tcp, is_first) = (scratch.tuple.protocol == protocol::TCP, scratch.flow.seen == 0);
    if is_tcp && (is_syn || is_first) {
        let client = match find_opposite(scratch) {
            OppositeEntry::SameFlow(client) => client.seen(),
            OppositeEntry::Absent | OppositeEntry::OtherFlow => 0,
        };
        // A SYN from the backend after the flow is over is no reply: a new connection of the client would
        // have replaced this flow. The client has connected to the backend directly, from the same port.
        // Later packets of that connection have no SYN, so the flow must go now.
        if is_syn && FlowState::of(protocol::TCP, client, scratch.flow.seen).is_over() {
            forget(scratch);
            return None;
        }
        // A backend answers a SYN by a SYN or RST. Another packet belongs to a direct connection from the same port, or to
        // what is left of an earlier connection.
        let is_answer = flags & (Seen::SYN | Seen::RST) != 0;
        if is_first && !is_answer && client & (Seen::SYN | Seen::ACK) == Seen::SYN {
            give_way(scratch, flags);
            return None;
        }
    }
    Some(entry)
}

/// Ends the flow in `scratch` for a direct connection of the client to the backend from the flow's port. The entry
/// for replies stays and passes them, so the client's next SYN to the VIP takes another backend or port.
#[inline(always)]
fn give_way(scratch: &mut Scratch, flags: u32) {
    let _ = FLOWS.remove(&scratch.opposite_key);
    scratch.flow.to = scratch.tuple;
    scratch.flow.flags |= FlowFlags::PASSED;
    scratch.flow.last_seen_ns = tick_ns();
    scratch.flow.seen = Seen::after(0, flags);
    let _ = FLOWS.insert(&scratch.tuple, &scratch.flow, BPF_ANY.into());
}

/// Whether the client's packet to a backend has the ends of a flow that the backend has just answered. The backend
/// takes it for a packet of the flow, and answers the flow's socket.
#[inline(always)]
pub(crate) fn is_taken(scratch: &mut Scratch) -> bool {
    scratch.opposite_key = scratch.tuple.reversed();
    let Some(reply) = find(&scratch.opposite_key) else { return false };
    let now = tick_ns();
    let passed = FlowFlags::HAIRPIN | FlowFlags::PASSED;
    reply.read_to(&mut scratch.spare);
    reply.flags() & (FlowFlags::REPLY | passed) == FlowFlags::REPLY
        && reply.seen() != 0
        && now.saturating_sub(reply.last_seen_ns()) < ANSWERED_NS
        && is_alive(scratch, reply, now)
}

/// Whether a packet with these TCP flags continues the flow in `scratch`.
///
/// A TCP connection keeps a removed backend until it ends. A SYN, and any UDP datagram, needs a backend
/// of the current set. A VIP that is not served has no set: see [`continues_departed`].
#[inline(always)]
fn continues(scratch: &mut Scratch, flags: u32) -> bool {
    if scratch.flow.is_reply() {
        return true;
    }
    if scratch.mode != VipMode::SERVED {
        return continues_departed(scratch, flags);
    }
    if scratch.flow.to.protocol == protocol::TCP {
        if !opens(flags) {
            return true;
        }
        let replied = match find_opposite(scratch) {
            OppositeEntry::Absent => 0,
            OppositeEntry::SameFlow(reply) => reply.seen(),
            OppositeEntry::OtherFlow => return false,
        };
        if FlowState::of(protocol::TCP, scratch.flow.seen, replied).is_over() {
            return false;
        }
    }
    serves(scratch.flow.frontend, scratch.flow.chosen, &scratch.flow.to)
}

/// Whether the backend that a flow remembers still serves the frontend, with the ends `to` of the flow's packets.
#[inline(always)]
fn serves(frontend: u32, chosen: BackendRef, to: &Tuple) -> bool {
    // Flows outlive the config maps. Config maps that were replaced assign the same ids again.
    recall(&ConfigMaps, frontend, chosen)
        .is_some_and(|choice| choice.backend.addr == to.dst && choice.backend.port == to.dst_port)
}

/// Whether a TCP segment with these flags opens a connection: it has a SYN, and is no answer.
#[inline(always)]
pub(crate) const fn opens(flags: u32) -> bool {
    flags & (Seen::SYN | Seen::ACK) == Seen::SYN
}

/// Whether a packet continues the flow in `scratch`, whose VIP was handed back or is gone.
///
/// A TCP connection goes on until it ends; a SYN begins another. UDP goes on while the backend answers, as if no answer
/// followed the latest one: nobody tells the agent any more when the backend ends.
#[inline(always)]
fn continues_departed(scratch: &mut Scratch, flags: u32) -> bool {
    let protocol = scratch.flow.to.protocol;
    if protocol == protocol::TCP {
        return !opens(flags);
    }
    let OppositeEntry::SameFlow(reply) = find_opposite(scratch) else { return false };
    tick_ns().saturating_sub(reply.last_seen_ns()) < FlowState::Unreplied.timeout_ns(protocol)
}

/// Deletes the flow in `scratch`, so that another one can begin with the same tuple.
#[inline(always)]
fn forget(scratch: &mut Scratch) {
    // A UDP flow keeps its reply entry: replies still to come must have the VIP as their source.
    if scratch.tuple.protocol == protocol::TCP {
        end(scratch);
    } else {
        let _ = FLOWS.remove(&scratch.tuple);
    }
}

/// Deletes both entries of the flow in `scratch`. An absent entry counts as success.
#[inline(always)]
pub(crate) fn end(scratch: &mut Scratch) {
    if let OppositeEntry::SameFlow(_) = find_opposite(scratch) {
        let _ = FLOWS.remove(&scratch.opposite_key);
    }
    let _ = FLOWS.remove(&scratch.tuple);
}

/// Begins a flow of a client to the frontend in `scratch`. It is found if another CPU has begun it meanwhile. Another
/// attempt may succeed if another flow has the same tuple of replies.
#[inline(always)]
pub(crate) fn begin(scratch: &mut Scratch, attempt: u32, flags: u32) -> Result<Answer, Counter> {
    let hash = scratch.tuple.short_hash();
    let mut random = hash;
    let mut port = scratch.tuple.src_port;
    if attempt < BACKEND_ATTEMPTS {
        // Affinity returns the same backend for every attempt.
        if attempt > 0 && has_affinity(&scratch.frontend) {
            return Ok(Answer::Again);
        }
        random = random.wrapping_add(attempt.wrapping_mul(u32::MAX / BACKEND_ATTEMPTS));
    } else {
        let offset = (hash >> 16).wrapping_add(attempt * 7) % (65_536 - FIRST_PORT);
        #[expect(clippy::cast_possible_truncation, reason = "less than 65536")]
        let alternative = (FIRST_PORT + offset) as u16;
        port = alternative;
    }
    let Some(choice) = affinity::choose_for_client(&scratch.tuple.src, &scratch.frontend, random)
    else {
        return Err(Counter::PacketRefusedNoBackend);
    };
    let now = tick_ns();
    mark_used(now);
    scratch.fill_flow(port, &choice, now);
    if !insert_reply(scratch, now)? {
        return Ok(Answer::Again);
    }
    if attempt >= BACKEND_ATTEMPTS {
        count(Counter::FlowPortChanged);
    }
    scratch.flow.seen = Seen::after(0, flags);
    record(scratch)
}

/// Makes `to_pod` look up packets from now on, and counts the entries of a new flow. It must precede the
/// insertion of a flow: user space resets the mark when it finds none, and then looks once more.
#[inline(always)]
fn mark_used(now: u64) {
    if let Some(evictions) = FLOW_EVICTIONS.get_ptr_mut(0) {
        // SAFETY: the pointer is to the array's only value.
        unsafe {
            asm!("lock *(u64 *)({entries} + 0) += {two}", entries = in(reg) &raw mut (*evictions).entries, two = in(reg) 2_u64);
            let entries = (&raw const (*evictions).entries).read_volatile();
            if entries > (&raw const (*evictions).limit).read_volatile() {
                (&raw mut (*evictions).latest_ns).write_volatile(now);
            }
        }
    }
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
    /// Fills `flow` with the client's entry of a new flow.
    #[inline(always)]
    fn fill_flow(&mut self, port: u16, choice: &Choice, now: u64) {
        let (tuple, backend) = (&self.tuple, &choice.backend);
        let hairpin = backend.addr == tuple.src;
        // A pod drops packets from its own address. So the source becomes the VIP, and the pod's reply
        // passes `from_pod` again.
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

    /// Fills `opposite` with the entry for the opposite direction of `flow`.
    #[inline(always)]
    fn fill_opposite(&mut self, now: u64) {
        self.opposite_key = self.flow.to.reversed();
        self.opposite.to = self.tuple.reversed();
        self.opposite.chosen = self.flow.chosen;
        self.opposite.frontend = self.flow.frontend;
        self.opposite.flags = self.flow.flags ^ FlowFlags::REPLY;
        self.opposite.last_seen_ns = now;
        self.opposite.seen = 0;
        self.opposite.pad = 0;
    }
}

/// Inserts the entry for replies, unless another flow that is alive has the key.
#[inline(always)]
fn insert_reply(scratch: &mut Scratch, now: u64) -> Result<bool, Counter> {
    scratch.fill_opposite(now);
    if FLOWS.insert(&scratch.opposite_key, &scratch.opposite, BPF_NOEXIST.into()).is_ok() {
        return Ok(true);
    }
    if let Some(existing) = find(&scratch.opposite_key) {
        existing.read_to(&mut scratch.spare);
        if scratch.spare != scratch.opposite.to && is_alive(scratch, existing, now) {
            return Ok(false);
        }
    }
    match FLOWS.insert(&scratch.opposite_key, &scratch.opposite, BPF_ANY.into()) {
        Ok(()) => Ok(true),
        Err(_) => Err(Counter::PacketDroppedFailed),
    }
}

/// Whether the flow with this entry for replies is alive: not over, and not idle beyond its timeout.
#[inline(always)]
fn is_alive(scratch: &mut Scratch, reply: FlowPointer, now: u64) -> bool {
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

/// Inserts the client's entry. If another CPU has begun the same flow meanwhile, its backend is used.
#[inline(always)]
fn record(scratch: &mut Scratch) -> Result<Answer, Counter> {
    if FLOWS.insert(&scratch.tuple, &scratch.flow, BPF_NOEXIST.into()).is_ok() {
        count(Counter::FlowCreated);
        return Ok(Answer::Begun);
    }
    let Some(first) = find(&scratch.tuple) else { return Err(Counter::PacketDroppedFailed) };
    first.read_to(&mut scratch.spare);
    if scratch.spare != scratch.flow.to {
        let _ = FLOWS.remove(&scratch.opposite_key);
    }
    first.read(&mut scratch.flow);
    Ok(Answer::Found)
}
