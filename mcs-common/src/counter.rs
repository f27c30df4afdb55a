/// Indices of the per-CPU array `counters`: what the programs did, by reason. A packet or connection
/// that is not to a VIP counts nowhere.
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
    /// Refused: the maps were found in a state that no reader should see.
    RefusedInconsistent,
    /// Socket storage could not be had; the LRU map holds the socket's state instead.
    StorageFailed,
    /// Two VIPs of one socket share a backend: replies are shown as from the VIP used last.
    ReverseShared,
}

impl Counter {
    /// Every counter, in index order.
    pub const ALL: [Self; 9] = [
        Self::ConnectTranslated,
        Self::SendTranslated,
        Self::ReceiveReversed,
        Self::PeerReversed,
        Self::RefusedNoBackend,
        Self::RefusedUnknownPort,
        Self::RefusedInconsistent,
        Self::StorageFailed,
        Self::ReverseShared,
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
            Self::StorageFailed => "storage_failed",
            Self::ReverseShared => "reverse_shared",
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
