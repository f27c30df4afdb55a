//! Health and metrics over HTTP, on a thread of its own: it answers whatever the control task does,
//! and nothing waits for it. While an address is in use, the agent runs without it and tries again.

mod answer;

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread,
};

use anyhow::Context as _;
use hyper::{Method, Uri};
use mcs_kube::program::http;
use tokio::{net::TcpListener, time::sleep};

pub(super) use self::answer::Answers;
use super::{
    config::{Config, POLL_INTERVAL},
    published::Published,
    report::ListenerReport,
    signals::until_signal,
};
use crate::loader::Pins;

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
                Some(Ok(socket)) => {
                    let answer =
                        move |method: &Method, uri: &Uri| answers.answer(self.serves, method, uri);
                    return http::serve(&socket, answer).await;
                }
                Some(Err(error)) => self.note(Some(&error)),
                None => {}
            }
            sleep(POLL_INTERVAL).await;
            socket = self.bind();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
