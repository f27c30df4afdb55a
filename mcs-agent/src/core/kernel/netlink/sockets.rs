//! `sock_diag(7)`: lists and destroys sockets.

use std::{collections::HashSet, io, net::IpAddr};

use mcs_common::Peer;
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, SockDiagDestroy, SockDiagMessage,
    inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags},
};
use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
        NetlinkSerializable,
    },
    sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG},
};

use super::list::{ended, uninterrupted};
use crate::core::model::Protocol;

/// A socket that has a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectedSocket {
    protocol: Protocol,
    family: u8,
    id: SocketId,
}

impl ConnectedSocket {
    /// The socket's cookie, as programs know it. The kernel tells the lower half first
    /// (`sock_diag_save_cookie`, `net/core/sock_diag.c`), each in the byte order of the host.
    pub fn cookie(&self) -> u64 {
        let [a, b, c, d, rest @ ..] = self.id.cookie;
        u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u32::from_ne_bytes(rest)) << 32
    }

    /// The address that it is connected to.
    pub fn peer(&self) -> Peer {
        Peer::new(self.id.destination_address.into(), self.id.destination_port)
    }
}

/// The result of [`SocketDiag::destroy`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DestroyOutcome {
    /// The socket has no peer any more. recv(2) says `ECONNABORTED` once, and each send(2) of a UDP socket `EDESTADDRREQ`.
    Destroyed,
    /// There was no socket with that cookie and these addresses any more.
    Closed,
}

/// A netlink socket for the network namespace of the thread that opened it.
pub struct SocketDiag(Socket);

impl SocketDiag {
    /// Opens it.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Every socket of a protocol that is connected or connects, of both families. With `port`, the peer has that port.
    /// The kernel lists IPv4 through an IPv6 socket with the sockets of IPv6.
    pub fn connected(
        &self,
        protocol: Protocol,
        port: Option<u16>,
    ) -> io::Result<Vec<ConnectedSocket>> {
        let mut found = Vec::new();
        // A UDP socket that has a peer is ESTABLISHED.
        let states = StateFlags::ESTABLISHED | StateFlags::SYN_SENT;
        self.list(protocol, port, &states, |socket| found.push(socket))?;
        Ok(found)
    }

    /// The cookies of all TCP and UDP sockets, of both families and in every state but `TIME_WAIT`: such a socket is closed,
    /// and keeps its cookie.
    pub fn cookies(&self) -> io::Result<HashSet<u64>> {
        let mut cookies = HashSet::new();
        let states = StateFlags::all() - StateFlags::TIME_WAIT;
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            self.list(protocol, None, &states, |socket| cookies.extend([socket.cookie()]))?;
        }
        Ok(cookies)
    }

    /// Passes on the sockets of both families.
    fn list(
        &self,
        protocol: Protocol,
        port: Option<u16>,
        states: &StateFlags,
        mut take: impl FnMut(ConnectedSocket),
    ) -> io::Result<()> {
        for mut id in [SocketId::new_v4(), SocketId::new_v6()] {
            id.destination_port = port.unwrap_or(0);
            let request = SockDiagMessage::InetRequest(request(protocol, id, states.clone()));
            self.send(request, NLM_F_REQUEST | NLM_F_DUMP)?;
            self.receive(|InetResponseHeader { family, socket_id: id, .. }| {
                take(ConnectedSocket { protocol, family, id });
            })?;
        }
        Ok(())
    }

    /// Destroys the socket, if there still is one with its cookie and addresses.
    pub fn destroy(&self, socket: &ConnectedSocket) -> io::Result<DestroyOutcome> {
        let request = InetRequest {
            family: socket.family,
            ..request(socket.protocol, socket.id.clone(), StateFlags::empty())
        };
        self.send(
            SockDiagDestroy::new(SockDiagMessage::InetRequest(request)),
            NLM_F_REQUEST | NLM_F_ACK,
        )?;
        match self.receive(|_| {}) {
            Ok(()) => Ok(DestroyOutcome::Destroyed),
            Err(error) => match error.raw_os_error() {
                // The cookie of another socket is ESTALE to TCP, ENOENT to UDP.
                Some(libc::ENOENT | libc::ESTALE) => Ok(DestroyOutcome::Closed),
                _ => Err(error),
            },
        }
    }

    /// Fails as [`SocketDiag::connected`] and [`SocketDiag::destroy`] would, without doing anything:
    /// no socket has the port 0, or the cookie 0.
    pub fn probe(&self, protocol: Protocol) -> io::Result<()> {
        self.connected(protocol, Some(u16::MAX))?;
        let nobody = ConnectedSocket { protocol, family: AF_INET, id: SocketId::new_v4() };
        self.destroy(&nobody).map(drop)
    }

    fn send<M>(&self, message: M, flags: u16) -> io::Result<()>
    where
        M: NetlinkSerializable + Into<NetlinkPayload<M>>,
    {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, message.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).map(drop)
    }

    /// Passes on the listed sockets, up to the end of the list or the acknowledgement.
    fn receive(&self, mut take: impl FnMut(InetResponseHeader)) -> io::Result<()> {
        loop {
            let (datagram, _) = self.0.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                    .map_err(io::Error::other)?;
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                uninterrupted(message.header.flags)?;
                match message.payload {
                    NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) => {
                        take(socket.header);
                    }
                    NetlinkPayload::Done(done) => return ended(done.code),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }
}

fn request(protocol: Protocol, socket_id: SocketId, states: StateFlags) -> InetRequest {
    let family = match socket_id.destination_address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    };
    let extensions = ExtensionFlags::empty();
    InetRequest { family, protocol: protocol.number(), extensions, states, socket_id }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// Listing the sockets of the own namespace takes no capability.
    #[test]
    fn a_connected_socket_is_listed_with_its_peer() {
        let diag = SocketDiag::open().unwrap();
        for (own, ip) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "::ffff:127.0.0.1")]
        {
            let Ok(socket) = UdpSocket::bind(own) else { continue };
            let port = 40_123;
            socket.connect((ip.parse::<IpAddr>().unwrap(), port)).unwrap();
            let local = socket.local_addr().unwrap().port();
            let peer = Peer::new(ip.parse::<IpAddr>().unwrap().into(), port);
            for filter in [None, Some(port)] {
                let found = diag.connected(Protocol::Udp, filter).unwrap();
                let ours = found.iter().find(|found| found.id.source_port == local).unwrap();
                assert_eq!(ours.peer(), peer);
                assert_ne!(ours.cookie(), 0);
            }
            let other = diag.connected(Protocol::Udp, Some(port - 1)).unwrap();
            assert!(other.iter().all(|found| found.id.source_port != local));
        }
    }

    #[test]
    fn the_lower_half_of_a_cookie_comes_first() {
        let mut id = SocketId::new_v4();
        id.cookie[..4].copy_from_slice(&5_u32.to_ne_bytes());
        id.cookie[4..].copy_from_slice(&7_u32.to_ne_bytes());
        let socket = ConnectedSocket { protocol: Protocol::Udp, family: AF_INET, id };
        assert_eq!(socket.cookie(), 7 << 32 | 5);
    }
}
