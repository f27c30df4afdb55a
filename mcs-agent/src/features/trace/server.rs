//! Serves `mcs-agent trace`, one client at a time: who asks last is told.

use std::{future, path::Path, time::Duration};

use mcs_kube::program;
use tokio::time::Instant;

use crate::features::trace::{Client, Listener};

/// The longest trace. A client ends earlier, unless it is stopped.
const LONGEST: Duration = Duration::from_mins(61);

/// Where clients ask, and the one that is served.
pub(crate) struct TraceServer {
    listener: Option<Listener>,
    client: Option<(Client, Instant)>,
}

/// What a client wants.
pub(crate) enum TraceOrder {
    /// To be served.
    Begin(Client),
    /// No more.
    End,
}

impl TraceServer {
    /// Listens in the run directory. An agent that cannot serves everything else.
    pub(crate) fn start(run_directory: &Path) -> Self {
        let listener = Listener::bind(run_directory)
            .inspect_err(|error| {
                tracing::warn!(
                    "mcs-agent trace will not work: cannot listen in {}: {error}",
                    run_directory.display()
                );
            })
            .ok();
        Self { listener, client: None }
    }

    /// Waits for a client, or for the end of the one that is served.
    pub(crate) async fn next(&mut self) -> TraceOrder {
        let ended = async {
            match &self.client {
                Some((client, _)) => client.ended().await,
                None => future::pending().await,
            }
        };
        let accept = async {
            let Some(listener) = &self.listener else { return future::pending().await };
            loop {
                match listener.accept().await {
                    Ok(client) => return client,
                    // Too many open files, for one.
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
        };
        tokio::select! {
            client = accept => return TraceOrder::Begin(client),
            () = ended => {}
            () = program::until(self.client.as_ref().map(|(_, end)| *end)) => {}
        }
        self.client = None;
        TraceOrder::End
    }

    /// This client is served from now on.
    pub(crate) fn serve(&mut self, client: Client) {
        self.client = Some((client, Instant::now() + LONGEST));
    }

    /// Ends the trace of the client that is served, if there is one.
    pub(crate) fn dismiss(&mut self, why: &str) {
        if let Some((client, _)) = self.client.take() {
            client.dismiss(why);
        }
    }
}
