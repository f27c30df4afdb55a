//! The source address that another pod sees: whether addresses are masqueraded on the way.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Where a controller answers with the source address of the request, and nothing else.
pub const PATH: &str = "/source";
/// The most bytes of an answer.
const MOST_BYTES: u64 = 4096;

/// Both ends' view of one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The address that it was opened from.
    pub own: IpAddr,
    /// The address that the other end sees.
    pub seen: IpAddr,
}

impl Source {
    /// Whether the other end sees somebody else.
    pub fn is_masqueraded(&self) -> bool {
        self.own != self.seen
    }
}

/// Asks a controller at this address. None if it is not reached, or is none that answers this.
pub async fn ask(address: SocketAddr, limit: Duration) -> Option<Source> {
    timeout(limit, converse(address)).await.ok()?.ok()?
}

async fn converse(address: SocketAddr) -> io::Result<Option<Source>> {
    let mut stream = TcpStream::connect(address).await?;
    let own = stream.local_addr()?.ip().to_canonical();
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer).await?;
    Ok(seen(&answer).map(|seen| Source { own, seen }))
}

/// The address in an answer.
fn seen(answer: &str) -> Option<IpAddr> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    (status == "200").then(|| body.trim().parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_is_an_answer() {
        let v6: IpAddr = "fd00::7".parse().unwrap();
        assert_eq!(seen("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nfd00::7\n"), Some(v6));
        for other in [
            "HTTP/1.1 404 Not Found\r\n\r\n10.0.0.1\n",
            "HTTP/1.1 200 OK\r\n\r\nok\n",
            "SSH-2.0-OpenSSH\r\n",
            "",
        ] {
            assert_eq!(seen(other), None, "{other}");
        }
    }
}
