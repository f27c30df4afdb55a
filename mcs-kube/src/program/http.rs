//! HTTP for probes, scrapes and a page: short requests of few clients, which cannot delay each other.

mod connections;
mod listeners;

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Response, StatusCode, Uri,
    body::Bytes,
    header::{self, HeaderValue},
    http::uri::Authority,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::yield_now,
    time::{sleep, timeout},
};

use self::connections::{Connections, HasRequest};
pub use self::listeners::{ListenerReport, Serve, Serves, start};

/// The time limit for the header of a request. Other clients would wait for a slow one.
const HEADER_DEADLINE: Duration = Duration::from_secs(1);
/// The time limit of a connection, which serves one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for example without file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
/// A browser runs no script, loads nothing from elsewhere, and shows an answer in no frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The media type of the body.
    pub content: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A text for people.
    pub fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, content: TEXT, body: body.into() }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }
}

/// Answers requests without end. At most 16 connections are open: the oldest makes room for a new one. `answer` gets
/// the client's address, and whether the client is on this machine and addresses it by a local name.
async fn serve<F>(listener: &TcpListener, answer: F)
where
    F: Fn(&Method, &Uri, (IpAddr, bool)) -> Answer + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let client = client.ip().to_canonical();
                let answer = Arc::clone(&answer);
                let has_request = HasRequest::default();
                let flag = has_request.clone();
                let task = tokio::spawn(async move {
                    // The client is too slow, or has left.
                    let _ = timeout(PATIENCE, converse(stream, client, &*answer, &flag)).await;
                });
                connections.add(task, has_request);
                // Reads an arrived request before it accepts the next connection, which can close this one.
                yield_now().await;
            }
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    client: IpAddr,
    answer: impl Fn(&Method, &Uri, (IpAddr, bool)) -> Answer,
    has_request: &HasRequest,
) -> hyper::Result<()> {
    let service = service_fn(|request| {
        has_request.set();
        let is_local = client.is_loopback() && has_local_name(request.headers());
        let answer = answer(request.method(), request.uri(), (client, is_local)).into_response();
        async move { Ok::<_, Infallible>(answer) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Whether the host of a request is a local name. A browser sends the name of the page's site, whatever address that name
/// has.
fn has_local_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| ["127.0.0.1", "[::1]", "localhost"].contains(&host.host()))
}

#[cfg(test)]
mod tests {
    use std::{io, net::SocketAddr};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The time that the kubelet gives a probe.
    const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

    /// Serves an empty answer on a free port.
    async fn serve_empty() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(
            async move { serve(&listener, |_, _, _| Answer::text(StatusCode::OK, "")).await },
        );
        address
    }

    async fn probe(address: SocketAddr) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn probes_are_answered_beside_silent_connections() {
        let address = serve_empty().await;
        let mut silent = Vec::new();
        for _ in 0..64 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = timeout(PROBE_TIMEOUT, probe(address)).await.expect("an answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_without_a_request_is_closed() {
        let mut silent = TcpStream::connect(serve_empty().await).await.unwrap();
        let closed = timeout(PROBE_TIMEOUT, silent.read(&mut [0; 1])).await;
        assert_eq!(closed.expect("the end").unwrap(), 0);
    }

    #[test]
    fn a_page_of_another_site_has_no_local_name() {
        let is_local = |host: &'static str| {
            has_local_name(&HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]))
        };
        for host in ["127.0.0.1", "127.0.0.1:16450", "localhost:8080", "[::1]:7"] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1:16450",
            "localhost@evil.example",
            "",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
