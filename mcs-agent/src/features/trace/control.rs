//! Trace: the programs tell what they decide while a client asks for it.

use mcs_common::TraceEvent;

use super::{
    Client,
    server::{TraceOrder, TraceServer},
    settings,
};
use crate::core::feature::{Act, Core, Feature, Follow, Wait};

/// The ring buffer: room for some 15,000 events. The reader empties it 50 times a second.
const BYTES: u32 = 1 << 21;

/// The feature in the agent.
pub(super) struct Trace {
    pub(super) server: TraceServer,
    pub(super) order: Option<TraceOrder>,
}

impl Trace {
    async fn follow_trace(&mut self, core: &mut Core, order: TraceOrder) {
        match order {
            TraceOrder::Begin(client) => {
                let who = match client.pid {
                    Some(pid) if pid > 0 => format!("process {pid}"),
                    _ => "a process of another PID namespace".to_owned(),
                };
                self.end_trace(core, &format!("{who} traces now")).await;
                if let Err((client, error)) = self.begin_trace(core, client).await {
                    tracing::warn!("trace: refused to {who}: {error:#}");
                    client.dismiss(&format!("{error:#}"));
                } else {
                    tracing::info!("trace: on, for {who}");
                }
            }
            TraceOrder::End => self.end_trace(core, "").await,
        }
    }

    async fn begin_trace(
        &mut self,
        core: &mut Core,
        client: Client,
    ) -> Result<(), (Client, anyhow::Error)> {
        let (settings, maps) = (settings(true, BYTES), [TraceEvent::MAP, TraceEvent::LOST]);
        let switch = core.installed.begin_variant(settings, &maps);
        let begun = core.published.life.beat_during(switch).await;
        match begun.and_then(|maps| Ok(client.give(&maps)?)) {
            Ok(()) => {
                self.server.serve(client);
                Ok(())
            }
            Err(error) => {
                self.end_trace(core, "").await;
                Err((client, error))
            }
        }
    }

    /// Puts the usual programs back, and tells the client why.
    async fn end_trace(&mut self, core: &mut Core, why: &str) {
        self.server.dismiss(why);
        if !core.installed.has_variant() {
            return;
        }
        match core.published.life.beat_during(core.installed.end_variant()).await {
            Ok(()) => tracing::info!("trace: off"),
            Err(error) => {
                tracing::warn!(
                    "trace: cannot put the usual programs back: {error:#}; trying again"
                );
            }
        }
    }
}

impl Feature for Trace {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async { self.order = Some(self.server.next().await) })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        Box::pin(async {
            if let Some(order) = self.order.take() {
                self.follow_trace(core, order).await;
            }
            Follow::Nothing
        })
    }

    fn release<'a>(&'a mut self, core: &'a mut Core, why: &'a str) -> Wait<'a> {
        Box::pin(self.end_trace(core, why))
    }
}
