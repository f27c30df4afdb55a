//! The state of the socket path: connections of sockets, and the UDP maps.

use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef};

/// An address and port of a socket.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Peer {
    /// The address.
    pub addr: Address,
    /// The port in host order.
    pub port: u16,
    /// Zero.
    pub pad: u16,
    /// Zero.
    pub pad2: u32,
}

const _: () = assert!(size_of::<Peer>() == 24);
crate::pod!(Peer);
crate::eq_by_words!(Peer, 3);

impl Peer {
    /// A peer with its padding zeroed.
    #[inline(always)]
    #[must_use]
    pub const fn new(addr: Address, port: u16) -> Self {
        Self { addr, port, pad: 0, pad2: 0 }
    }
}

/// A connection to a VIP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Connection {
    /// The destination of the application.
    pub vip: Peer,
    /// The destination that the kernel got instead.
    pub backend: Peer,
    /// The backend's id and generation; id 0 means no connection.
    pub chosen: BackendRef,
}

const _: () = assert!(size_of::<Connection>() == 56);
crate::pod!(Connection);

/// Value of the socket storage `sockets`. A socket has one after its first use of a VIP. All other
/// sockets cost the receiving hooks one look at an empty pointer.
///
/// The hook runs before the connect, which may still fail and leave the socket with its old peer. So
/// there are two connections, and every reader compares both with the kernel's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct SocketState {
    /// The latest connection that the application asked for.
    pub current: Connection,
    /// The connection before it.
    pub previous: Connection,
    /// What the socket has sent to VIPs without connecting: bits of [`Sent`]. Unless it is 0, `sent_pairs` and
    /// `udp_reverse` may have entries for it.
    pub unconnected: u64,
}

const _: () = assert!(size_of::<SocketState>() == 120);
crate::pod!(SocketState);

/// [`SocketState::unconnected`]. The upper half is the index of the frontend whose pin `udp_pins` has for this socket, if
/// that is the only one.
pub struct Sent;

impl Sent {
    /// The socket has sent.
    pub const ANY: u64 = 1;
    /// The socket has pins of several frontends.
    const SEVERAL: u64 = 2;

    /// The value after another pin.
    #[inline(always)]
    #[must_use]
    pub const fn with_pin(sent: u64, frontend: u32) -> u64 {
        let only = Self::ANY | (frontend as u64) << 32;
        if sent == 0 || sent == only { only } else { Self::ANY | Self::SEVERAL }
    }

    /// The frontend of the only pin that the socket can have; 0 if it has several, or none, or nobody knows.
    #[inline(always)]
    #[must_use]
    pub const fn only_pin(sent: u64) -> u32 {
        (sent >> 32) as u32
    }
}

/// A VIP that an unconnected UDP socket sent to, and the backend that got the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct SentPair {
    /// The destination of the application.
    pub vip: Peer,
    /// The destination that the kernel got instead; port 0 means no pair.
    pub backend: Peer,
}

const _: () = assert!(size_of::<SentPair>() == 48);
crate::pod!(SentPair);

/// Value of the socket storage `sent_pairs`: the latest pairs of an unconnected UDP socket. `udp_reverse` has
/// the earlier ones.
///
/// Two threads that send on one socket to different VIPs at once can mix a pair. The next datagram to that
/// backend corrects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct SentPairs {
    /// The latest pair that was new.
    pub latest: SentPair,
    /// The one before it.
    pub previous: SentPair,
}

const _: () = assert!(size_of::<SentPairs>() == 96);
crate::pod!(SentPairs);

/// Key of the LRU map `udp_pins`: an unconnected UDP socket and the VIP it sends to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct PinKey {
    /// The socket's cookie (`bpf_get_socket_cookie`).
    pub cookie: u64,
    /// Index into `states`; [`PinKey::CLOSED`] in the entry that says that the socket is closed and has left pins.
    pub frontend: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<PinKey>() == 16);
crate::pod!(PinKey);

impl PinKey {
    /// The frontend of no pin.
    pub const CLOSED: u32 = 0;
}

/// Key of the LRU maps `udp_reverse` (an unconnected UDP socket and a backend that it sent to) and
/// `udp_connected` (a socket and a backend that it connected to).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ReverseKey {
    /// The socket's cookie (`bpf_get_socket_cookie`).
    pub cookie: u64,
    /// The backend's address and port.
    pub backend: Peer,
}

const _: () = assert!(size_of::<ReverseKey>() == 32);
crate::pod!(ReverseKey);

/// Value of the LRU map `udp_reverse`: the VIP that the application sent to. It remains after the
/// backend is removed, since that pod may still answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ReverseValue {
    /// The VIP and port.
    pub vip: Peer,
}

const _: () = assert!(size_of::<ReverseValue>() == 24);
crate::pod!(ReverseValue);

/// Value of the LRU map `udp_connected`: the VIP that the application connected to. Socket storage does not
/// say whose it is, so the agent finds here who is connected to a backend without a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ConnectedValue {
    vip: Address,
    vip_port: u16,
    /// 1 for a socket of TCP, and 0 for one of UDP.
    is_tcp: u16,
    pad: u32,
    /// The cookie of the socket's network namespace.
    pub netns_cookie: u64,
}

const _: () = assert!(size_of::<ConnectedValue>() == 32);
crate::pod!(ConnectedValue);

impl ConnectedValue {
    /// A connection of a socket of TCP, or of UDP.
    #[inline(always)]
    #[must_use]
    pub const fn new(vip: Peer, is_tcp: bool, netns_cookie: u64) -> Self {
        Self { vip: vip.addr, vip_port: vip.port, is_tcp: is_tcp as u16, pad: 0, netns_cookie }
    }

    /// The VIP and port.
    #[must_use]
    pub const fn vip(&self) -> Peer {
        Peer::new(self.vip, self.vip_port)
    }

    /// Whether the socket is one of TCP.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.is_tcp != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_with_one_pin_names_it() {
        let after = |pins: &[u32]| pins.iter().fold(0, |sent, pin| Sent::with_pin(sent, *pin));
        for (pins, expected) in [
            (&[][..], 0),
            (&[7], 7),
            (&[7, 7], 7),
            (&[7, 8], 0),
            (&[7, 8, 7], 0),
            (&[u32::MAX], u32::MAX),
        ] {
            assert_eq!(Sent::only_pin(after(pins)), expected, "{pins:?}");
            assert_eq!(after(pins) == 0, pins.is_empty());
        }
        let unknown = Sent::with_pin(Sent::ANY, 7);
        assert_eq!(Sent::only_pin(unknown), 0, "it may have another pin");
    }
}
