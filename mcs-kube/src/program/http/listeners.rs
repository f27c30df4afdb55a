//! Serves health and metrics on a thread of its own, so that a busy control task does not delay answers. While an address
//! is in use, the program runs without it and retries.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use hyper::{Method, StatusCode, Uri};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, time::sleep};

use super::{Answer, serve};

/// The pause before an address in use is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The parts that one address serves to one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serves {
    /// Whether `--health-address` is this address.
    pub health: bool,
    /// Whether `--metrics-address` is this address.
    pub metrics: bool,
    /// Whether the client is on this machine, and addresses it by a local name.
    pub local: bool,
    /// The client's address; none before there is a client.
    pub client: Option<IpAddr>,
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

/// The state of one address. Part of `mcs-agent status -o json`: fields are added, never renamed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListenerReport {
    /// The flags that ask for it: `--health-address`.
    pub flags: String,
    /// Where.
    pub address: SocketAddr,
    /// Why it is not served now.
    pub problem: Option<String>,
}

/// The answers of a program.
pub trait Serve: Send + Sync + 'static {
    /// Answers a request.
    fn answer(&self, serves: Serves, uri: &Uri) -> Answer;

    /// The state of an address has changed.
    fn note_listener(&self, _state: ListenerReport) {}
}

/// Serves health and metrics at these addresses until the process ends. Returns after every address was tried once. The
/// future `beside` runs on the same thread.
pub fn start(
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    server: &Arc<impl Serve>,
    beside: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let listeners: Vec<_> = endpoints(health, metrics)
        .into_iter()
        .map(|(address, serves)| {
            let server = Arc::clone(server);
            let mut listener = Listener { address, serves, server, state: None };
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
    let serve = move || {
        runtime.block_on(async {
            for (listener, socket) in listeners {
                tokio::spawn(listener.serve(socket));
            }
            beside.await;
            std::future::pending::<()>().await;
        });
    };
    thread::Builder::new().name("http".to_owned()).spawn(serve).context("cannot start a thread")?;
    Ok(())
}

/// Each address once.
fn endpoints(health: Option<SocketAddr>, metrics: Option<SocketAddr>) -> Vec<(SocketAddr, Serves)> {
    if let Some(both) = health.filter(|_| health == metrics) {
        return vec![(both, Serves { health: true, metrics: true, local: false, client: None })];
    }
    let serves = |health| Serves { health, metrics: !health, local: false, client: None };
    let health = health.map(|address| (address, serves(true)));
    let metrics = metrics.map(|address| (address, serves(false)));
    health.into_iter().chain(metrics).collect()
}

struct Listener<S> {
    address: SocketAddr,
    serves: Serves,
    server: Arc<S>,
    /// The last reported state.
    state: Option<ListenerReport>,
}

impl<S: Serve> Listener<S> {
    fn bind(&mut self) -> Option<StdListener> {
        let socket = bind_where_possible(self.address, StdListener::bind)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        self.note(socket.as_ref().err());
        socket.ok()
    }

    fn note(&mut self, error: Option<&io::Error>) {
        let (address, flags) = (self.address, self.serves.flags());
        let problem = error.map(|error| {
            format!("cannot listen on {address}: {error}; give {flags} another address, or `off`")
        });
        let state = ListenerReport { flags: flags.to_owned(), address, problem };
        if self.state.as_ref() == Some(&state) {
            return;
        }
        if let Some(problem) = &state.problem {
            tracing::error!("{problem}; trying again, and going on without");
        } else {
            tracing::info!("listening on {address} ({flags})");
        }
        self.state = Some(state.clone());
        self.server.note_listener(state);
    }

    async fn serve(mut self, mut socket: Option<StdListener>) {
        loop {
            match socket.take().map(TcpListener::from_std) {
                Some(Ok(socket)) => {
                    let answer = move |method: &Method, uri: &Uri, (client, local)| {
                        if [Method::GET, Method::HEAD].contains(method) {
                            let serves = Serves { local, client: Some(client), ..self.serves };
                            self.server.answer(serves, uri)
                        } else {
                            Answer::text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n")
                        }
                    };
                    return serve(&socket, answer).await;
                }
                Some(Err(error)) => self.note(Some(&error)),
                None => {}
            }
            sleep(RETRY).await;
            socket = self.bind();
        }
    }
}

/// Binds an address. One that means both families means IPv4 on a kernel without IPv6 (`ipv6.disable=1`).
fn bind_where_possible<T>(
    address: SocketAddr,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let lacks_ipv6 =
        |error: &io::Error| error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    match bind(address) {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && lacks_ipv6(&error) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_ipv4_on_a_kernel_without_ipv6() {
        // What socket(2) says where the kernel has IPv4 alone.
        let bind = |address: SocketAddr| match address {
            SocketAddr::V4(_) => Ok(address),
            SocketAddr::V6(_) => Err(Errno::AFNOSUPPORT.into()),
        };
        let bound = |text: &str| {
            bind_where_possible(text.parse().unwrap(), bind).map(|bound| bound.to_string())
        };
        assert_eq!(bound("[::]:16460").unwrap(), "0.0.0.0:16460");
        assert_eq!(bound("127.0.0.1:1").unwrap(), "127.0.0.1:1");
        let named = bound("[fd00::1]:1").unwrap_err();
        assert_eq!(
            named.raw_os_error(),
            Some(Errno::AFNOSUPPORT.raw_os_error()),
            "it names one address"
        );
        let busy = |_| Err::<(), _>(io::ErrorKind::AddrInUse.into());
        let busy = bind_where_possible("[::]:1".parse().unwrap(), busy).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::AddrInUse);
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
