//! Client sockets, as applications use them.

use std::{
    fmt,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, SocketType, ipproto,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use crate::wait;

/// A timeout beyond which nothing succeeds any more, so that no case hangs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// By when a refusal is there.
pub const AT_ONCE: Duration = Duration::from_millis(500);

/// A family of addresses, and of the socket that uses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// IPv4 through an IPv6 socket.
    Mapped,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Mapped];
    /// The families that differ on the wire.
    pub const ON_WIRE: [Self; 2] = [Self::V4, Self::V6];

    fn of_socket(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::INET,
            Self::V6 | Self::Mapped => AddressFamily::INET6,
        }
    }

    /// Of a host's two addresses the one of this family, as its sockets write it.
    pub fn address(self, v4: Ipv4Addr, v6: Ipv6Addr, port: u16) -> SocketAddr {
        let ip: IpAddr = match self {
            Self::V4 => v4.into(),
            Self::V6 => v6.into(),
            Self::Mapped => v4.to_ipv6_mapped().into(),
        };
        SocketAddr::new(ip, port)
    }

    /// An address that any family's socket may have written, as this family's sockets write it.
    pub fn written(self, address: SocketAddr) -> SocketAddr {
        match (self, address.ip().to_canonical()) {
            (Self::Mapped, IpAddr::V4(v4)) => {
                SocketAddr::new(v4.to_ipv6_mapped().into(), address.port())
            }
            (_, ip) => SocketAddr::new(ip, address.port()),
        }
    }
}

impl Family {
    /// The address to which a socket that listens everywhere is bound.
    pub fn any(self, port: u16) -> SocketAddr {
        let ip = match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 | Self::Mapped => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(ip, port)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
            Self::Mapped => "IPv4 through IPv6",
        })
    }
}

/// A TCP socket, not connected.
pub fn tcp(family: Family) -> io::Result<TcpStream> {
    Ok(socket(family, SocketType::STREAM, None)?.into())
}

/// An MPTCP socket, not connected.
pub fn mptcp(family: Family) -> io::Result<TcpStream> {
    Ok(socket(family, SocketType::STREAM, Some(ipproto::MPTCP))?.into())
}

/// A UDP socket, neither bound nor connected.
pub fn udp(family: Family) -> io::Result<UdpSocket> {
    Ok(socket(family, SocketType::DGRAM, None)?.into())
}

fn socket(family: Family, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family.of_socket(), kind, protocol)?;
    for which in [Timeout::Recv, Timeout::Send] {
        match set_socket_timeout(&socket, which, Some(wait::scaled(TIMEOUT))) {
            // A socket of MPTCP on Linux 5.15 has no timeout of sending.
            Err(Errno::OPNOTSUPP) if protocol == Some(ipproto::MPTCP) => {}
            set => set?,
        }
    }
    Ok(socket)
}

/// connect(2).
pub fn connect(socket: impl AsFd, to: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::connect(socket, &to)?)
}

/// connect(2) with `AF_UNSPEC`.
pub fn disconnect(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::connect_unspec(socket)?)
}

/// setsockopt(2) of an option that no crate has.
#[cfg(feature = "suites")]
#[expect(unsafe_code, reason = "setsockopt(2)")]
pub fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> anyhow::Result<()> {
    use std::os::fd::AsRawFd as _;

    let length = value.len().try_into()?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads that many bytes of the value.
    let result = unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), length) };
    ensure!(result == 0, "option {name} of {level}: {}", io::Error::last_os_error());
    Ok(())
}

/// A TCP connection.
pub fn connected(family: Family, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = tcp(family)?;
    connect(&stream, to)?;
    Ok(stream)
}

/// A UDP socket with a peer.
pub fn udp_connected(family: Family, to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = udp(family)?;
    connect(&socket, to)?;
    Ok(socket)
}

/// Who answers at the other end of a TCP connection.
pub fn identity(stream: &TcpStream) -> anyhow::Result<SocketAddr> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("no greeting")?;
    parse(line.trim_end())
}

/// Sends over a connection to `vip`, whose other end sends the same back.
pub fn still_goes(mut stream: &TcpStream, vip: SocketAddr) -> anyhow::Result<()> {
    let peer = stream.peer_addr()?;
    ensure!(peer == vip, "its peer is {peer} instead of {vip}");
    stream.write_all(b"still there?")?;
    let mut echo = [0; 12];
    stream.read_exact(&mut echo)?;
    ensure!(&echo == b"still there?", "other bytes came back");
    Ok(())
}

/// A datagram that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Who sent it, as it says itself.
    pub backend: SocketAddr,
    /// Who sent it, as the kernel says.
    pub source: SocketAddr,
}

/// Waits for a reply with recvfrom(2).
pub fn receive(socket: &UdpSocket) -> anyhow::Result<Reply> {
    let mut buffer = [0; 128];
    let (length, source) = socket.recv_from(&mut buffer).context("no reply")?;
    Ok(Reply { backend: parse(std::str::from_utf8(&buffer[..length])?)?, source })
}

/// Waits for a reply with recv(2), which tells no source.
pub fn receive_nameless(socket: &UdpSocket) -> anyhow::Result<SocketAddr> {
    let mut buffer = [0; 128];
    let length = socket.recv(&mut buffer).context("no reply")?;
    parse(std::str::from_utf8(&buffer[..length])?)
}

/// Sends to `to` with sendto(2), and waits for the reply.
pub fn ask(socket: &UdpSocket, to: SocketAddr) -> anyhow::Result<Reply> {
    socket.send_to(b"who are you", to).with_context(|| format!("cannot send to {to}"))?;
    receive(socket)
}

/// Fails unless the attempt is refused, and soon.
pub fn refused_at_once(attempt: impl FnOnce() -> io::Result<()>) -> anyhow::Result<()> {
    let start = Instant::now();
    let error = attempt().err().context("was answered")?;
    let time = start.elapsed();
    ensure!(error.kind() == io::ErrorKind::ConnectionRefused, "{error} after {time:?}");
    ensure!(time < wait::scaled(AT_ONCE), "after {time:?}");
    Ok(())
}

/// What a server says of itself is in the first line.
fn parse(text: &str) -> anyhow::Result<SocketAddr> {
    let line = text.lines().next().unwrap_or_default();
    line.parse().with_context(|| format!("{line:?} is no address"))
}
