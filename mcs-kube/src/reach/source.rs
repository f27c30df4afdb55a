//! The source address that another pod sees: whether addresses are masqueraded on the way. And whether a large answer of it
//! arrives: a path with a smaller MTU can lose full packets alone.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures_util::future::join;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Where a controller answers with the source address of the request, and nothing else.
pub const PATH: &str = "/source";
/// The query for an answer with [`PADDING`] more bytes.
pub const LARGE: &str = "large";
/// They take many full packets.
pub const PADDING: usize = 64 * 1024;
/// The most bytes of an answer.
const MOST_BYTES: u64 = 2 * PADDING as u64;

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
    let (own, answer) = timeout(limit, converse(address, PATH)).await.ok()?.ok()?;
    seen(&answer).map(|seen| Source { own, seen })
}

/// Asks a controller at this address, and whether a large answer of it arrives too. None: the small one does not, or it is of a
/// version that has none.
pub async fn ask_both(address: SocketAddr, limit: Duration) -> (Option<Source>, Option<bool>) {
    let (source, large) = join(ask(address, limit), ask_large(address, limit)).await;
    (source, large.filter(|_| source.is_some()))
}

async fn ask_large(address: SocketAddr, limit: Duration) -> Option<bool> {
    match timeout(limit, converse(address, &format!("{PATH}?{LARGE}"))).await {
        Ok(Ok((_, answer))) => (answer.len() >= PADDING).then_some(true),
        Ok(Err(_)) | Err(_) => Some(false),
    }
}

/// The address of this end, and the answer.
async fn converse(address: SocketAddr, path: &str) -> io::Result<(IpAddr, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let own = stream.local_addr()?.ip().to_canonical();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer).await?;
    Ok((own, answer))
}

/// The address in an answer.
fn seen(answer: &str) -> Option<IpAddr> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    (status == "200").then(|| body.trim().parse().ok())?
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_large_answer_arrives_or_is_lost() {
        let limit = Duration::from_millis(500);
        let asked = async |body: Option<usize>| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 512]).await;
                match body {
                    Some(bytes) => {
                        let answer =
                            format!("HTTP/1.1 200 OK\r\n\r\n10.0.0.1{}", " ".repeat(bytes));
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    None => tokio::time::sleep(2 * limit).await,
                }
            };
            tokio::join!(ask_large(address, limit), serve).0
        };
        assert_eq!(asked(Some(PADDING)).await, Some(true));
        assert_eq!(asked(Some(0)).await, None, "an earlier version");
        assert_eq!(asked(None).await, Some(false));
    }

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
