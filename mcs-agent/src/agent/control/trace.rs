//! Trace: the programs tell what they decide while a client asks for it.

use std::time::Duration;

use tokio::time::timeout;

use super::Control;
use crate::{agent::trace::TraceOrder, trace::Client};

/// How long an agent that ends waits for the end of a trace. The next agent ends it too.
const LAST: Duration = Duration::from_secs(5);

impl Control {
    /// Puts the usual programs back before the agent ends, if somebody traces.
    pub(in crate::agent) async fn stop(&mut self) {
        if timeout(LAST, self.end_trace("the agent has ended")).await.is_err() {
            tracing::warn!("trace: the programs that tell what they decide stay");
        }
    }

    pub(super) async fn follow_trace(&mut self, order: TraceOrder) {
        match order {
            TraceOrder::Begin(client) => {
                let who = match client.pid {
                    Some(pid) if pid > 0 => format!("process {pid}"),
                    _ => "a process of another PID namespace".to_owned(),
                };
                self.end_trace(&format!("{who} traces now")).await;
                if let Err((client, error)) = self.begin_trace(client).await {
                    tracing::warn!("trace: refused to {who}: {error:#}");
                    client.dismiss(&format!("{error:#}"));
                } else {
                    tracing::info!("trace: on, for {who}");
                }
            }
            TraceOrder::End => self.end_trace("").await,
        }
    }

    async fn begin_trace(&mut self, client: Client) -> Result<(), (Client, anyhow::Error)> {
        let begun = self.published.life.beat_during(self.installed.begin_trace()).await;
        match begun.and_then(|maps| Ok(client.give(&maps)?)) {
            Ok(()) => {
                self.trace.serve(client);
                Ok(())
            }
            Err(error) => {
                self.end_trace("").await;
                Err((client, error))
            }
        }
    }

    /// Puts the usual programs back, and tells the client why.
    pub(super) async fn end_trace(&mut self, why: &str) {
        self.trace.dismiss(why);
        if !self.installed.is_traced() {
            return;
        }
        match self.published.life.beat_during(self.installed.end_trace()).await {
            Ok(()) => tracing::info!("trace: off"),
            Err(error) => {
                tracing::warn!(
                    "trace: cannot put the usual programs back: {error:#}; trying again"
                );
            }
        }
    }
}
