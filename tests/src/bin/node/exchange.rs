//! Exchanges of clients with echo servers.

use std::{net::Shutdown, panic};

use mcs_tests::client::Reply;

use crate::prelude::*;

/// A prime, so that no piece of a stream looks like another one.
const PATTERN: usize = 65_521;

/// Bytes that do not repeat.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(7).fill(&mut bytes);
    bytes
}

/// A TCP connection to an echo server, and who that says it is.
pub(crate) fn greeted(family: Family, to: SocketAddr) -> Result<(TcpStream, SocketAddr)> {
    greeted_on(client::tcp(family)?, to)
}

/// The same with a socket that is not connected yet.
pub(crate) fn greeted_on(stream: TcpStream, to: SocketAddr) -> Result<(TcpStream, SocketAddr)> {
    client::connect(&stream, to).with_context(|| format!("connect {to}"))?;
    let peer = stream.peer_addr()?;
    ensure!(peer == to, "the peer of a socket to {to} is {peer}");
    let mut line = Vec::new();
    // Byte by byte: what follows is not for this reader.
    BufReader::with_capacity(1, &stream).read_until(b'\n', &mut line).context("no greeting")?;
    let identity = String::from_utf8(line)?;
    Ok((stream, identity.trim_end().parse().with_context(|| format!("{identity:?}"))?))
}

/// Sends `length` bytes to an echo server and reads them back at the same time, to the end of the
/// connection.
pub(crate) fn bulk(stream: &TcpStream, length: usize) -> Result {
    let pattern = pattern(PATTERN);
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(stream, &pattern, length));
        let received = receive(stream, &pattern, length);
        let sent = sender.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        received?;
        sent.context("sending")
    })
}

fn send(mut stream: &TcpStream, pattern: &[u8], length: usize) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let piece = &pattern[..left.min(pattern.len())];
        stream.write_all(piece)?;
        left -= piece.len();
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: &TcpStream, pattern: &[u8], length: usize) -> Result {
    let mut buffer = vec![0; pattern.len()];
    let mut left = length;
    while left > 0 {
        let piece = left.min(pattern.len());
        let at = || format!("{left} of {length} bytes before the end");
        stream.read_exact(&mut buffer[..piece]).with_context(at)?;
        ensure!(buffer[..piece] == pattern[..piece], "other bytes, {}", at());
        left -= piece;
    }
    ensure!(stream.read(&mut buffer)? == 0, "more bytes than were sent");
    Ok(())
}

/// Waits for a datagram of an echo server: who sent it, and what came back.
pub(crate) fn echoed(socket: &UdpSocket) -> Result<(Reply, Vec<u8>)> {
    let mut buffer = vec![0; 1 << 16];
    let (length, source) = socket.recv_from(&mut buffer).context("no reply")?;
    buffer.truncate(length);
    let end = buffer.iter().position(|byte| *byte == b'\n').context("no identity")?;
    let backend = std::str::from_utf8(&buffer[..end])?.parse()?;
    Ok((Reply { backend, source }, buffer.split_off(end + 1)))
}

/// Waits for a datagram of an echo server with `payload`.
pub(crate) fn echo(socket: &UdpSocket, payload: &[u8]) -> Result<Reply> {
    let (reply, received) = echoed(socket)?;
    ensure!(received == payload, "other bytes came back");
    Ok(reply)
}

/// Sends datagrams of this size with [`UdpSocket::send_to`] until one comes back: the first may be
/// too large for a hop that nobody knew of.
pub(crate) fn ask_until_known(socket: &UdpSocket, to: SocketAddr, length: usize) -> Result<Reply> {
    const ATTEMPTS: u32 = 10;

    let payload = pattern(length);
    let patience = socket.read_timeout()?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut obstacle = None;
    for _ in 0..ATTEMPTS {
        match socket.send_to(&payload, to) {
            Ok(_) => match echo(socket, &payload) {
                Ok(reply) => {
                    socket.set_read_timeout(patience)?;
                    return Ok(reply);
                }
                Err(error) => obstacle = Some(error),
            },
            // The size was known meanwhile; the datagram would have to be cut.
            Err(error) => obstacle = Some(error.into()),
        }
    }
    Err(obstacle.context("never sent")?.context(format!("{length} bytes to {to}")))
}
