//! One request of a client.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::manifests::Protocol;

use super::example::Host;

const PATIENCE: Duration = Duration::from_secs(2);

/// Asks for an answer by a new socket, and returns who gave it. It is an error as well if the socket
/// names anything but `server` as its peer.
pub(super) fn ask(protocol: Protocol, server: SocketAddr) -> Result<Host> {
    let (identity, peer) = match protocol {
        Protocol::Tcp => get(server)?,
        Protocol::Udp => query(server)?,
    };
    ensure!(peer == server, "the peer of a socket to {server} is {peer}");
    let identity = identity.trim();
    Host::identified(identity).with_context(|| format!("{server} answered {identity:?}"))
}

/// An HTTP request: the body, and the peer's name.
fn get(server: SocketAddr) -> io::Result<(String, SocketAddr)> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let peer = stream.peer_addr()?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (_, body) = response.split_once("\r\n\r\n").unwrap_or_default();
    Ok((body.to_owned(), peer))
}

/// A datagram by a socket that is not connected: the answer, and where it came from.
fn query(server: SocketAddr) -> io::Result<(String, SocketAddr)> {
    let any = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(b"who is there?", server)?;
    let mut buffer = [0; 64];
    let (length, peer) = socket.recv_from(&mut buffer)?;
    Ok((String::from_utf8_lossy(&buffer[..length]).into_owned(), peer))
}
