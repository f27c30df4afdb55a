use bytemuck::{Pod, Zeroable};

use crate::{Address, BackendRef};

/// An address, port and protocol as a socket sees them.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Peer {
    /// The address.
    pub addr: Address,
    /// Host order.
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

/// A connection to a VIP, as made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Connection {
    /// What the application connected to.
    pub vip: Peer,
    /// What the kernel connected to.
    pub backend: Peer,
    /// The backend's id and generation; id 0 where there is no connection.
    pub chosen: BackendRef,
}

const _: () = assert!(size_of::<Connection>() == 56);
crate::pod!(Connection);

/// Value of the socket storage `sockets`. A socket has one from the first time it uses a VIP, so
/// that all others cost one look at an empty pointer.
///
/// The hook runs before the connect, which may still fail and leave the socket connected where it
/// was. So there are two connections, and every reader compares them with the address it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct SocketState {
    /// The connection tried last.
    pub current: Connection,
    /// The connection before it.
    pub previous: Connection,
    /// Not 0 once the socket has sent to a VIP without connecting: `udp_reverse` may know it.
    pub unconnected: u64,
}

const _: () = assert!(size_of::<SocketState>() == 120);
crate::pod!(SocketState);

/// Key of the LRU map `udp_pins`: an unconnected UDP socket and the VIP it sends to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct PinKey {
    /// The socket's cookie.
    pub cookie: u64,
    /// Index into `states`.
    pub frontend: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<PinKey>() == 16);
crate::pod!(PinKey);

/// Key of the LRU maps `udp_reverse`, an unconnected UDP socket and the backend it heard from, and
/// `udp_connected`, a UDP socket and the backend it connected to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ReverseKey {
    /// The socket's cookie.
    pub cookie: u64,
    /// The backend.
    pub backend: Peer,
}

const _: () = assert!(size_of::<ReverseKey>() == 32);
crate::pod!(ReverseKey);

/// Value of the LRU map `udp_reverse`: what the application sent to. It outlives the backend's
/// place in the set, since a removed pod still answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ReverseValue {
    /// The ClusterSetIP and port.
    pub vip: Peer,
}

const _: () = assert!(size_of::<ReverseValue>() == 24);
crate::pod!(ReverseValue);

/// Value of the LRU map `udp_connected`: what the application connected to. Socket storage cannot be
/// listed, so this is what tells the agent whose sockets to destroy when the backend goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ConnectedValue {
    /// The ClusterSetIP and port.
    pub vip: Peer,
    /// The cookie of the socket's network namespace.
    pub netns_cookie: u64,
}

const _: () = assert!(size_of::<ConnectedValue>() == 32);
crate::pod!(ConnectedValue);
