//! Health and metrics over HTTP, on a thread of its own: it answers whatever the control task does,
//! and nothing waits for it. While an address is in use, the agent runs without it and tries again.

mod answer;
mod connections;

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::yield_now,
    time::{sleep, timeout},
};

pub(super) use self::answer::Answers;
use self::connections::{Connections, HasRequest};
use super::{
    config::{Config, POLL_INTERVAL},
    published::Published,
    report::ListenerReport,
    signals::until_signal,
};
use crate::loader::Pins;

/// A client sends the header of its request within this. Other clients would wait for a longer one.
const HEADER_DEADLINE: Duration = Duration::from_secs(1);
/// A connection serves one request, within this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Out of file descriptors, for example.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// What is served at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Serves {
    pub(super) health: bool,
    pub(super) metrics: bool,
}

impl Serves {
    /// The flags that ask for it.
    fn flags(self) -> &'static str {
        match (self.health, self.metrics) {
            (true, true) => "--health-address and --metrics-address",
            (true, false) => "--health-address",
            (false, _) => "--metrics-address",
        }
    }
}

/// Serves what `config` asks for, as long as the process runs. Returns when every address was tried
/// once.
pub(super) fn start(config: &Config, published: &Arc<Published>) -> anyhow::Result<()> {
    let endpoints = endpoints(config.health_address, config.metrics_address);
    let listeners: Vec<_> = endpoints
        .into_iter()
        .map(|(address, serves)| {
            let listener = Listener { address, serves, published: Arc::clone(published) };
            let socket = listener.bind();
            (listener, socket)
        })
        .collect();
    if listeners.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let answers = Arc::new(Answers {
        published: Arc::clone(published),
        pins: Pins::new(&config.bpffs),
        patience: config.liveness_timeout,
    });
    let published = Arc::clone(published);
    let serve = move || {
        runtime.block_on(async {
            for (listener, socket) in listeners {
                tokio::spawn(listener.serve(socket, Arc::clone(&answers)));
            }
            // The control task hears of it too, unless it is busy.
            match until_signal().await {
                Ok(()) => published.stop(),
                Err(error) => {
                    tracing::warn!("/readyz will not tell that the agent ends: {error:#}");
                }
            }
            std::future::pending::<()>().await;
        });
    };
    thread::Builder::new().name("http".to_owned()).spawn(serve).context("cannot start a thread")?;
    Ok(())
}

/// Each address once.
fn endpoints(health: Option<SocketAddr>, metrics: Option<SocketAddr>) -> Vec<(SocketAddr, Serves)> {
    if let Some(both) = health.filter(|_| health == metrics) {
        return vec![(both, Serves { health: true, metrics: true })];
    }
    let health = health.map(|address| (address, Serves { health: true, metrics: false }));
    let metrics = metrics.map(|address| (address, Serves { health: false, metrics: true }));
    health.into_iter().chain(metrics).collect()
}

struct Listener {
    address: SocketAddr,
    serves: Serves,
    published: Arc<Published>,
}

impl Listener {
    fn bind(&self) -> Option<StdListener> {
        let socket = StdListener::bind(self.address)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        self.note(socket.as_ref().err());
        socket.ok()
    }

    fn note(&self, error: Option<&io::Error>) {
        let flags = self.serves.flags();
        let problem = error.map(|error| {
            format!(
                "cannot listen on {}: {error}; give {flags} another address, or `off`",
                self.address
            )
        });
        let listener = ListenerReport { flags: flags.to_owned(), address: self.address, problem };
        if self.published.listeners().contains(&listener) {
            return;
        }
        if let Some(problem) = &listener.problem {
            tracing::error!("{problem}; trying again, and going on without");
        } else {
            tracing::info!("listening on {} ({flags})", self.address);
        }
        self.published.set_listener(listener);
    }

    async fn serve(self, mut socket: Option<StdListener>, answers: Arc<Answers>) {
        loop {
            match socket.take().map(TcpListener::from_std) {
                Some(Ok(socket)) => return self.accept(socket, answers).await,
                Some(Err(error)) => self.note(Some(&error)),
                None => {}
            }
            sleep(POLL_INTERVAL).await;
            socket = self.bind();
        }
    }

    async fn accept(&self, socket: TcpListener, answers: Arc<Answers>) {
        let mut connections = Connections::default();
        loop {
            match socket.accept().await {
                Ok((stream, _)) => {
                    let (answers, serves) = (Arc::clone(&answers), self.serves);
                    let has_request = HasRequest::default();
                    let flag = has_request.clone();
                    let task = tokio::spawn(async move {
                        // A client that is too slow, or gone.
                        let _ = timeout(PATIENCE, converse(stream, serves, &answers, &flag)).await;
                    });
                    connections.add(task, has_request);
                    // A request that has arrived is read before the next connection is accepted, which
                    // can close this one.
                    yield_now().await;
                }
                Err(error) => {
                    tracing::debug!("cannot accept on {}: {error}", self.address);
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    serves: Serves,
    answers: &Answers,
    has_request: &HasRequest,
) -> hyper::Result<()> {
    let service = service_fn(|request| async move {
        has_request.set();
        Ok::<_, Infallible>(answers.answer(serves, request.method(), request.uri()))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::agent::metrics::SyncMetrics;

    /// The time that the kubelet gives a probe.
    const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

    /// Serves `/livez` on a free port.
    fn serve_livez() -> SocketAddr {
        let socket = StdListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let published = Arc::new(Published::new(SyncMetrics::new().unwrap()));
        published.beat();
        let answers = Answers {
            published: Arc::clone(&published),
            pins: Pins::new("/nonexistent".as_ref()),
            patience: Duration::from_mins(1),
        };
        let serves = Serves { health: true, metrics: false };
        let listener = Listener { address, serves, published };
        tokio::spawn(listener.serve(Some(socket), Arc::new(answers)));
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
    async fn livez_answers_beside_silent_connections() {
        let address = serve_livez();
        let mut silent = Vec::new();
        for _ in 0..64 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = timeout(PROBE_TIMEOUT, probe(address)).await.expect("an answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_without_a_request_is_closed() {
        let mut silent = TcpStream::connect(serve_livez()).await.unwrap();
        let closed = timeout(PROBE_TIMEOUT, silent.read(&mut [0; 1])).await;
        assert_eq!(closed.expect("the end").unwrap(), 0);
    }

    #[test]
    fn one_address_can_serve_both() {
        let [a, b] = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().unwrap());
        let flags = |health, metrics| {
            let endpoints = endpoints(health, metrics).into_iter();
            endpoints
                .map(|(at, serves): (SocketAddr, _)| (at.port(), serves.flags()))
                .collect::<Vec<_>>()
        };
        assert_eq!(flags(None, None), []);
        assert_eq!(flags(Some(a), None), [(1, "--health-address")]);
        assert_eq!(flags(Some(a), Some(b)), [(1, "--health-address"), (2, "--metrics-address")]);
        assert_eq!(flags(Some(a), Some(a)), [(1, "--health-address and --metrics-address")]);
    }
}
