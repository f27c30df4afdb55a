//! The programs' counters.

/// Indices of the per-CPU array `counters`. Packets and connections that are not to a VIP are not
/// counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Counter {
    /// A connect was sent to a backend.
    ConnectTranslated,
    /// A datagram of an unconnected socket was sent to a backend.
    SendTranslated,
    /// A received datagram's source was shown as the VIP.
    ReceiveReversed,
    /// A peer name was shown as the VIP.
    PeerReversed,
    /// Refused: no usable backend.
    RefusedNoBackend,
    /// Refused: the VIP has no such port.
    RefusedUnknownPort,
    /// Refused: the config maps contradicted each other twice in a row.
    RefusedInconsistent,
    /// Refused: the VIP's import was deleted.
    RefusedGone,
    /// Socket storage could not be allocated. The LRU map `udp_reverse` has the socket's state instead.
    StorageFailed,
    /// Two VIPs of one socket share a backend. Replies show the VIP used last.
    ReverseShared,
    /// A packet to a VIP was sent to a backend.
    PacketTranslated,
    /// A reply's source was made the VIP.
    PacketReversed,
    /// A flow began.
    FlowCreated,
    /// A flow got another source port, because another flow has the same tuple of replies.
    FlowPortChanged,
    /// An ICMP error was translated, with the packet inside.
    IcmpTranslated,
    /// An ICMP echo request to a VIP was answered.
    EchoAnswered,
    /// Dropped: an ICMP redirect about a translated packet, which is right for one backend only.
    RedirectDropped,
    /// Refused with RST or ICMP: no usable backend.
    PacketRefusedNoBackend,
    /// Refused with RST or ICMP: the VIP has no such port.
    PacketRefusedUnknownPort,
    /// Refused with RST or ICMP: the config maps contradicted each other twice in a row.
    PacketRefusedInconsistent,
    /// Refused with RST or ICMP: other flows have the tuple of replies for every backend and port tried, or a direct
    /// connect to a backend has that of a flow.
    PacketRefusedCollision,
    /// Refused with RST or ICMP, by `from_pod` or at an uplink: the VIP's import was deleted.
    PacketRefusedGone,
    /// Refused with ICMP: SCTP, which is not translated.
    PacketRefusedSctp,
    /// A refused packet got no answer: the CPU's limit for answers was reached.
    RefusalLimited,
    /// A refused packet got no answer: it was a reset, or could not be turned into an answer.
    RefusalSilent,
    /// Dropped: a packet to a VIP of a protocol without ports.
    PacketDroppedProtocol,
    /// Dropped: a packet to a VIP whose headers are truncated, contradictory or too deeply nested.
    PacketDroppedMalformed,
    /// Dropped: a later fragment to a VIP whose first one has not been seen.
    PacketDroppedFragment,
    /// Dropped: ICMP to a VIP that belongs to no flow.
    PacketDroppedIcmp,
    /// Dropped: the packet or the flow table could not be written.
    PacketDroppedFailed,
    /// Dropped on an uplink, or answered with a reset: a packet to a VIP that no hook translated.
    LeakPrevented,
    /// A packet to a VIP, of a TCP connection that this node did not begin, passed unchanged.
    PacketPassed,
    /// A connection went to socket storage: both slots of the socket were taken, or it connected again while it was
    /// connected.
    SlotUnavailable,
}

impl Counter {
    /// Every counter, in index order.
    pub const ALL: [Self; 33] = [
        Self::ConnectTranslated,
        Self::SendTranslated,
        Self::ReceiveReversed,
        Self::PeerReversed,
        Self::RefusedNoBackend,
        Self::RefusedUnknownPort,
        Self::RefusedInconsistent,
        Self::RefusedGone,
        Self::StorageFailed,
        Self::ReverseShared,
        Self::PacketTranslated,
        Self::PacketReversed,
        Self::FlowCreated,
        Self::FlowPortChanged,
        Self::IcmpTranslated,
        Self::EchoAnswered,
        Self::RedirectDropped,
        Self::PacketRefusedNoBackend,
        Self::PacketRefusedUnknownPort,
        Self::PacketRefusedInconsistent,
        Self::PacketRefusedCollision,
        Self::PacketRefusedGone,
        Self::PacketRefusedSctp,
        Self::RefusalLimited,
        Self::RefusalSilent,
        Self::PacketDroppedProtocol,
        Self::PacketDroppedMalformed,
        Self::PacketDroppedFragment,
        Self::PacketDroppedIcmp,
        Self::PacketDroppedFailed,
        Self::LeakPrevented,
        Self::PacketPassed,
        Self::SlotUnavailable,
    ];

    /// The name that `status` and the metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectTranslated => "connect_translated",
            Self::SendTranslated => "send_translated",
            Self::ReceiveReversed => "receive_reversed",
            Self::PeerReversed => "peer_reversed",
            Self::RefusedNoBackend => "refused_no_backend",
            Self::RefusedUnknownPort => "refused_unknown_port",
            Self::RefusedInconsistent => "refused_inconsistent",
            Self::RefusedGone => "refused_gone",
            Self::StorageFailed => "storage_failed",
            Self::ReverseShared => "reverse_shared",
            Self::PacketTranslated => "packet_translated",
            Self::PacketReversed => "packet_reversed",
            Self::FlowCreated => "flow_created",
            Self::FlowPortChanged => "flow_port_changed",
            Self::IcmpTranslated => "icmp_translated",
            Self::EchoAnswered => "echo_answered",
            Self::RedirectDropped => "icmp_redirect_dropped",
            Self::PacketRefusedNoBackend => "packet_refused_no_backend",
            Self::PacketRefusedUnknownPort => "packet_refused_unknown_port",
            Self::PacketRefusedInconsistent => "packet_refused_inconsistent",
            Self::PacketRefusedCollision => "packet_refused_collision",
            Self::PacketRefusedGone => "packet_refused_gone",
            Self::PacketRefusedSctp => "packet_refused_sctp",
            Self::RefusalLimited => "refusal_limited",
            Self::RefusalSilent => "refusal_silent",
            Self::PacketDroppedProtocol => "packet_dropped_protocol",
            Self::PacketDroppedMalformed => "packet_dropped_malformed",
            Self::PacketDroppedFragment => "packet_dropped_fragment",
            Self::PacketDroppedIcmp => "packet_dropped_icmp",
            Self::PacketDroppedFailed => "packet_dropped_failed",
            Self::LeakPrevented => "leak_prevented",
            Self::PacketPassed => "packet_passed",
            Self::SlotUnavailable => "slot_unavailable",
        }
    }
}

const _: () = {
    let mut i = 0;
    while i < Counter::ALL.len() {
        assert!(Counter::ALL[i] as usize == i);
        i += 1;
    }
};
