//! What a client does over and over while its time is taken.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketType, connect, socket,
    sockopt::{
        Timeout, set_socket_linger, set_socket_timeout, set_tcp_congestion, set_tcp_nodelay,
    },
};

use crate::prelude::*;

/// The congestion control of all TCP sockets. The default of some systems, BBR, sends at a pace: that hides what a
/// packet costs.
pub(crate) const CONGESTION: &str = "reno";
/// Nothing takes as long that works.
const TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";
const CHUNK: usize = 128 * 1024;

/// Does something so many times, after a tenth more to warm up. Returns the median of the nanoseconds
/// that each took, so that what interrupts a few does not count.
pub(crate) fn time_each(count: u32, mut work: impl FnMut(usize) -> Result) -> Result<f64> {
    let warm = count / 10;
    let mut times = Vec::with_capacity(usize::try_from(count)?);
    for number in 0..warm + count {
        let begin = Instant::now();
        work(usize::try_from(number)?)?;
        if number >= warm {
            times.push(begin.elapsed().as_secs_f64() * 1e9);
        }
    }
    quantile(&times, 0.5).context("nothing was done")
}

/// Makes a TCP connection and resets it, so that its port is free at once.
pub(crate) fn connect_tcp(to: SocketAddrV4) -> Result {
    tcp(to).map(drop)
}

fn tcp(to: SocketAddrV4) -> Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_congestion(&socket)?;
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    connect(&socket, &to).with_context(|| format!("connect {to}/TCP"))?;
    Ok(socket.into())
}

/// Sets [`CONGESTION`] for a socket, and for the connections that it accepts.
pub(crate) fn set_congestion(socket: impl AsFd) -> io::Result<()> {
    Ok(set_tcp_congestion(socket, CONGESTION)?)
}

fn patient_tcp(to: SocketAddrV4) -> Result<TcpStream> {
    let stream = tcp(to)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    set_tcp_nodelay(&stream, true)?;
    Ok(stream)
}

/// Connects a UDP socket, and sends nothing.
pub(crate) fn connect_udp(to: SocketAddrV4) -> Result {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    connect(&socket, &to).with_context(|| format!("connect {to}/UDP"))
}

/// Asks an HTTP server on a new connection, and reads the answer to its end.
pub(crate) fn ask_http(to: SocketAddrV4) -> Result {
    let mut stream = tcp(to)?;
    stream.write_all(REQUEST)?;
    let (mut buffer, mut length) = ([0; 512], 0);
    loop {
        match stream.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    ensure!(buffer[..length].starts_with(b"HTTP/1.1 200"), "{to} is no such HTTP server");
    Ok(())
}

/// A socket of the caller's namespace and cgroup, for [`ask_who`]. `patience` limits its connect and each read.
pub(crate) fn asker(patience: Duration) -> Result<OwnedFd> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    Ok(socket)
}

/// Which backend answers at `to` now.
pub(crate) fn ask_who(socket: OwnedFd, to: SocketAddrV4) -> Result<Ipv4Addr> {
    connect(&socket, &to)?;
    let mut octets = [0; 4];
    TcpStream::from(socket).read_exact(&mut octets)?;
    Ok(octets.into())
}

/// Sends a byte and waits for it to come back. Returns how often that goes in a second, by the
/// median of the times.
pub(crate) fn exchange_tcp(to: SocketAddrV4, count: u32) -> Result<f64> {
    let mut stream = patient_tcp(to)?;
    let mut byte = [7];
    let time = time_each(count, |_| {
        stream.write_all(&byte)?;
        Ok(stream.read_exact(&mut byte)?)
    })?;
    Ok(1e9 / time)
}

/// The same with datagrams, on a socket that is connected.
pub(crate) fn exchange_connected(to: SocketAddrV4, count: u32) -> Result<f64> {
    let socket = udp()?;
    socket.connect(to)?;
    let mut buffer = [7];
    let time = time_each(count, |_| {
        socket.send(&buffer)?;
        ensure!(socket.recv(&mut buffer)? == 1, "a datagram of another size");
        Ok(())
    })?;
    Ok(1e9 / time)
}

/// The same on a socket that is not, which checks where each answer is from.
pub(crate) fn exchange_unconnected(to: SocketAddrV4, count: u32) -> Result<f64> {
    let socket = udp()?;
    let mut buffer = [7];
    let time = time_each(count, |_| {
        socket.send_to(&buffer, to)?;
        let (length, from) = socket.recv_from(&mut buffer)?;
        ensure!(length == 1 && from == SocketAddr::V4(to), "an answer from {from}, not {to}");
        Ok(())
    })?;
    Ok(1e9 / time)
}

fn udp() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

/// Sends as much as the other side takes, on five connections one after the other. Returns the Gbit/s, by
/// their median: how fast one goes differs from the next.
pub(crate) fn send_bulk(to: SocketAddrV4, span: Duration) -> Result<f64> {
    const CONNECTIONS: u32 = 5;

    let speeds = (0..CONNECTIONS).map(|_| send_on_one(to, span / CONNECTIONS));
    quantile(&speeds.collect::<Result<Vec<_>, _>>()?, 0.5).context("nothing was sent")
}

fn send_on_one(to: SocketAddrV4, span: Duration) -> Result<f64> {
    let mut stream = patient_tcp(to)?;
    let chunk = vec![0; CHUNK];
    let mut send_for = |span: Duration| {
        let (begin, mut chunks) = (Instant::now(), 0_u32);
        while begin.elapsed() < span {
            stream.write_all(&chunk)?;
            chunks += 1;
        }
        let chunk = f64::from(u32::try_from(CHUNK)?);
        anyhow::Ok(f64::from(chunks) * chunk * 8.0 / 1e9 / begin.elapsed().as_secs_f64())
    };
    // Until the windows are open.
    send_for(span / 5)?;
    send_for(span)
}

/// Sends datagrams that nobody reads, and returns the median of the nanoseconds that each takes until
/// it is at the server: sending and forwarding is done when the call returns.
pub(crate) fn send_datagrams(to: SocketAddrV4, connected: bool, count: u32) -> Result<f64> {
    let socket = udp()?;
    if connected {
        socket.connect(to)?;
    }
    time_each(count, |_| {
        let sent = if connected { socket.send(&[7; 32]) } else { socket.send_to(&[7; 32], to) };
        match sent {
            Ok(32) => Ok(()),
            Ok(length) => bail!("{length} bytes were sent"),
            Err(error) => Err(error).with_context(|| format!("send to {to}/UDP")),
        }
    })
}
