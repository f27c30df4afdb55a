//! Whether packets as full as those of a connection pass to a pod and back. Its kernel answers echo requests, whatever its ports
//! speak.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures_util::future::join;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use socket2::SockRef;
use tokio::{
    net::{TcpStream, UdpSocket},
    time::{sleep, timeout},
};

/// How many bytes a small request has.
const SMALL: usize = 56;
/// The headers of a segment and of an echo request, without that of IP.
const HEADERS: [usize; 2] = [20, 8];
/// How often one is sent, and the time after each. A request may be lost, or may be the one by which a router tells the MTU.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(300);

/// Whether they pass. None: the pod accepts no connection or answers no echo, or this machine may not send any.
///
/// A full request may not be cut on its way, as a segment may not, until a router has told the MTU. The answer may.
pub(super) async fn full(address: SocketAddr, limit: Duration) -> Option<bool> {
    let stream = timeout(limit, TcpStream::connect(address)).await.ok()?.ok()?;
    let segment = usize::try_from(SockRef::from(&stream).tcp_mss().ok()?).ok()?;
    drop(stream);
    let full = (segment + HEADERS[0]).saturating_sub(HEADERS[1]);
    let (small, full) = join(echo(address.ip(), SMALL), echo(address.ip(), full)).await;
    small.is_ok_and(|comes| comes).then_some(full.is_ok_and(|comes| comes))
}

/// Whether one of a few echo requests with that many bytes comes back.
async fn echo(to: IpAddr, bytes: usize) -> io::Result<bool> {
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(protocol))?;
    // It is used as one of UDP. The kernel fills in checksum and identifier, and gives it no other answers.
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
    let mut message = vec![0; HEADERS[1] + bytes];
    message[0] = request;
    let send = async {
        for _ in 0..TRIES {
            // The MTU of the path may have become known just now.
            let _ = socket.send_to(&message, (to, 0)).await;
            sleep(PAUSE).await;
        }
    };
    let receive = async {
        let mut kind = [0];
        while socket.recv(&mut kind).await.is_ok() && kind[0] != reply {}
        kind[0] == reply
    };
    tokio::select! {
        comes = receive => Ok(comes),
        () = send => Ok(false),
    }
}
