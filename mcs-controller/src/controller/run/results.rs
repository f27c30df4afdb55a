//! What follows from writes that have ended.

use std::time::Instant;

use jiff::Timestamp;

use super::{Control, Done};
use crate::plan::Write;

impl Control {
    /// Notes how a write has ended.
    pub(super) fn finish(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Import(name, sent) => {
                self.count("cluster", sent.failure.is_none());
                if sent.keeps_derived_service {
                    self.state.note_derived_stays(name.clone(), now);
                }
                self.budgets.give_back(&sent.unsent, self.state.cluster(), now);
                self.measure(&sent.made);
                for write in &sent.made {
                    if let Write::ApplyImport(import) = write {
                        self.state.own.note_applied(import);
                    }
                }
                if let Some(error) = &sent.failure {
                    if error.is_unknown_field("endpointSliceObjects") {
                        self.state.leave_out_slice_objects();
                    }
                    tracing::warn!("cannot import {name}: {error}; trying again");
                }
                self.state.imports.end(&name, sent.failure.is_some(), now);
            }
            Done::Publication(name, result) => {
                self.count("mailbox", result.is_ok());
                let error = result.err();
                if let Some(error) = &error {
                    tracing::warn!("cannot publish {name}: {error}; trying again");
                }
                self.state.note_publication(&name, error.as_ref());
                self.state.publications.end(&name, error.is_some(), now);
            }
            Done::Lease(Ok(version)) => {
                if self.term.written(version, now) {
                    self.begin_term();
                }
            }
            Done::Lease(Err(error)) => {
                let mailbox = &self.settings.mailbox;
                tracing::warn!("cannot renew the Lease publisher of mailbox {mailbox}: {error}");
                if self.term.failed(error.is_conflict(), self.state.outbox.lists(), now) {
                    // The watches may not have noticed what somebody else has done there.
                    self.own_mailbox = self.watch_own_mailbox();
                }
            }
            Done::Token(secret, Ok(expires)) => {
                tracing::info!("the token in Secret {secret} is renewed, and expires at {expires}");
            }
            Done::Token(secret, Err(error)) => {
                tracing::warn!(
                    "cannot renew the token in Secret {secret}: {error:#}; trying again"
                );
            }
            Done::Event(result) => {
                if let Err(error) = result {
                    tracing::debug!("cannot write an event: {error}");
                }
            }
            Done::PeerStatus(peer, result) => {
                self.reporting.remove(&peer);
                if let Err(error) = result {
                    tracing::debug!("cannot write the status of ClusterPeer {peer}: {error}");
                }
            }
        }
    }

    fn measure(&mut self, writes: &[Write]) {
        for (cluster, took) in self.propagation.measure(writes, Timestamp::now()) {
            let propagation = &self.published.metrics.propagation;
            propagation.with_label_values(&[cluster.as_str()]).observe(took.as_secs_f64());
        }
    }

    fn count(&self, target: &str, is_ok: bool) {
        let result = if is_ok { "ok" } else { "error" };
        self.published.metrics.writes.with_label_values(&[target, result]).inc();
    }
}
