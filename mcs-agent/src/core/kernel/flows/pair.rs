//! Flows as pairs of entries, one for each direction.

use std::collections::HashMap;

use mcs_common::{Flow, FlowFlags, FlowState, Seen, Tuple};

use crate::core::model::Protocol;

const SECOND_NS: u64 = 1_000_000_000;

/// An entry of the flow table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEntry {
    /// The packets that it translates.
    pub key: Tuple,
    /// What becomes of them.
    pub flow: Flow,
}

impl FlowEntry {
    /// The key of the entry for packets the other way.
    pub const fn other_key(&self) -> Tuple {
        self.flow.to.reversed()
    }

    /// Whether `other` is the entry for packets the other way. Its key may have an entry of another flow.
    fn pairs_with(&self, other: &Self) -> bool {
        other.key == self.other_key()
            && other.flow.to == self.key.reversed()
            && other.flow.is_reply() != self.flow.is_reply()
    }
}

/// A flow: both of its entries, or one if the kernel has evicted the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowPair {
    one: FlowEntry,
    other: Option<FlowEntry>,
}

impl FlowPair {
    /// The flow of `one`, with the entry under its [`FlowEntry::other_key`].
    pub fn new(one: FlowEntry, other: Option<FlowEntry>) -> Self {
        Self { one, other: other.filter(|other| one.pairs_with(other)) }
    }

    /// Both entries, or the single one.
    pub fn entries(&self) -> impl Iterator<Item = FlowEntry> {
        std::iter::once(self.one).chain(self.other)
    }

    /// The key of one of its entries.
    pub const fn first_key(&self) -> Tuple {
        self.one.key
    }

    /// The client's packets as it sends them: from itself to the VIP.
    pub const fn client(&self) -> Tuple {
        if self.one.flow.is_reply() { self.one.other_key() } else { self.one.key }
    }

    /// The client's packets as the backend gets them.
    pub const fn translated(&self) -> Tuple {
        if self.one.flow.is_reply() { self.one.key.reversed() } else { self.one.flow.to }
    }

    /// The backend and the frontend, on which both entries agree.
    pub const fn flow(&self) -> &Flow {
        &self.one.flow
    }

    /// The state that the packets of both directions lead to.
    pub fn state(&self) -> FlowState {
        let seen = |reply| self.direction(reply).map_or(0, |flow| flow.seen);
        FlowState::of(self.client().protocol, seen(false), seen(true))
    }

    fn direction(&self, reply: bool) -> Option<Flow> {
        self.entries().map(|entry| entry.flow).find(|flow| flow.is_reply() == reply)
    }

    /// The outcome of the connect that began this flow; `None` if it is not known, or not yet.
    pub fn connect(&self) -> Option<Connect> {
        let (client, reply) = (self.direction(false)?, self.direction(true)?);
        let is_translated = client.flags & FlowFlags::PASSED == 0;
        if self.client().protocol != Protocol::Tcp.number()
            || !is_translated
            || client.seen & Seen::SYN == 0
        {
            return None;
        }
        // The entry for replies has the time of the first SYN until there is a reply.
        let at = reply.last_seen_ns;
        if reply.seen & Seen::SYN != 0 {
            Some(Connect::Answered(at))
        } else if reply.seen & Seen::RST != 0 {
            Some(Connect::Failed(at))
        } else if reply.seen == 0 && client.last_seen_ns >= at + SECOND_NS / 2 {
            // Clients send their SYN again after a second.
            Some(Connect::Failed(at + SECOND_NS))
        } else {
            None
        }
    }

    /// Whether it has had no packet for as long as its state allows. If an entry is
    /// missing, the other one decides.
    ///
    /// A UDP flow whose backend was removed is no exception: replies may be on their way, and the client's next
    /// packet makes the programs choose another backend.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let timeout = self.state().timeout_ns(self.client().protocol);
        now_ns.saturating_sub(self.last_seen_ns()) >= timeout + Flow::TOUCH_NS
    }

    /// Whether a single entry of it may be there on purpose: that for the replies of a backend that a UDP client has left, and
    /// that of packets that pass untranslated.
    pub fn is_kept_alone(&self) -> bool {
        let Flow { flags, .. } = self.one.flow;
        let is_udp = self.client().protocol == Protocol::Udp.number();
        flags & FlowFlags::PASSED != 0 || (is_udp && self.one.flow.is_reply())
    }

    /// Whether it is a TCP connection that has not ended and that the programs translate.
    pub fn is_open_connection(&self, now_ns: u64) -> bool {
        let ended = [FlowState::Closed, FlowState::Reset];
        self.client().protocol == Protocol::Tcp.number()
            && self.flow().flags & FlowFlags::PASSED == 0
            && !ended.contains(&self.state())
            && !self.is_due(now_ns)
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` at the latest packet, in either direction; it may have come
    /// up to [`Flow::TOUCH_NS`] later.
    pub fn last_seen_ns(&self) -> u64 {
        let other = self.other.map_or(0, |other| other.flow.last_seen_ns);
        self.one.flow.last_seen_ns.max(other)
    }
}

/// The outcome of the connect that began a flow, and its time in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connect {
    /// The backend has accepted it, and has sent its latest packet at this time.
    Answered(u64),
    /// The backend has reset it, or the client had to send its SYN again.
    Failed(u64),
}

/// Finds the two entries of each flow, in any order.
#[derive(Debug, Default)]
pub struct Pairing {
    single: HashMap<Tuple, Flow>,
}

impl Pairing {
    /// Takes an entry. Returns its flow if the counterpart was added before.
    pub fn add(&mut self, entry: FlowEntry) -> Option<FlowPair> {
        let key = entry.other_key();
        let other = self.single.get(&key).map(|&flow| FlowEntry { key, flow });
        let pair = FlowPair::new(entry, other);
        if pair.other.is_some() {
            self.single.remove(&key);
            return Some(pair);
        }
        self.single.insert(entry.key, entry.flow);
        None
    }

    /// The flows with a single entry.
    pub fn rest(self) -> impl Iterator<Item = FlowPair> {
        self.single.into_iter().map(|(key, flow)| FlowPair::new(FlowEntry { key, flow }, None))
    }
}
