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
    /// 1 after the socket has sent to a VIP without connecting, else 0. With 1, `sent_pairs` and
    /// `udp_reverse` may have entries for it.
    pub unconnected: u64,
}

const _: () = assert!(size_of::<SocketState>() == 120);
crate::pod!(SocketState);

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
    /// Index into `states`.
    pub frontend: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<PinKey>() == 16);
crate::pod!(PinKey);

/// Key of the LRU maps `udp_reverse` (an unconnected UDP socket and a backend that it sent to) and
/// `udp_connected` (a UDP socket and a backend that it connected to).
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

/// Value of the LRU map `udp_connected`: the VIP that the application connected to. Socket storage cannot
/// be listed, so the agent finds the sockets of a removed backend here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ConnectedValue {
    /// The VIP and port.
    pub vip: Peer,
    /// The cookie of the socket's network namespace.
    pub netns_cookie: u64,
}

const _: () = assert!(size_of::<ConnectedValue>() == 32);
crate::pod!(ConnectedValue);
