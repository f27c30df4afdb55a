//! Handles the results of tasks.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use mcs_kube::told;

use super::{Control, TaskResult, writes::PlanResult};
use crate::core::{
    apply::ApplyError, clock, clusterset::ServiceName, peers::PeerName, plan::Write, status::Turn,
};

impl Control {
    /// Notes how a write has ended.
    pub(super) fn finish(&mut self, done: TaskResult) {
        let now = clock::now();
        match done {
            TaskResult::Import(name, result) => self.note_import(&name, result, now),
            TaskResult::Publication(name, sent) => {
                self.count("mailbox", sent.failure.is_none());
                self.core.state.publications.end(&name, sent.failure.is_some(), now);
                let has_changed = self.core.state.note_publication(&name, &sent);
                if let Some(error) = sent.failure.filter(|_| has_changed) {
                    tracing::warn!("cannot publish {name}: {error}; trying again");
                }
            }
            TaskResult::Lease(result) => {
                self.note_lease(result.as_ref().err(), now);
                match result {
                    Ok(version) => {
                        if self.term.written(version, now) {
                            self.begin_term();
                        }
                    }
                    Err(error) => {
                        if self.term.failed(
                            error.is_conflict(),
                            self.core.state.own_mailbox.lists(),
                            now,
                        ) {
                            // Another writer has changed the object, and the watch may be late.
                            self.mailbox_watches = self.watch_own_mailbox();
                        }
                    }
                }
            }
            TaskResult::Token(secret, result) => self.note_token(&secret, result),
            TaskResult::Misnamed(key, result) => {
                if let Err(error) = result {
                    tracing::debug!("cannot judge ServiceExport {key}: {error}");
                }
                self.judging.remove(&key);
            }
            TaskResult::Event(result) => {
                if let Err(error) = result {
                    tracing::debug!("cannot write an event: {error}");
                }
            }
            TaskResult::PeerStatus(peer, result) => {
                self.reporting.remove(&peer);
                self.note_status(&peer, result.err());
            }
        }
    }

    fn note_import(&mut self, name: &ServiceName, result: PlanResult, now: Instant) {
        let PlanResult { sent, keeps_derived_service } = result;
        self.count("cluster", sent.failure.is_none());
        if keeps_derived_service {
            self.core.state.note_derived_stays(name.clone(), now);
        }
        for write in &sent.made {
            if let Write::ApplyImport(import) = write {
                self.core.state.own.note_applied(import);
            }
            self.features.each().for_each(|one| one.note_written(write, now));
        }
        let mut lacks_fields = false;
        if let Some(error) = &sent.failure {
            lacks_fields = self.core.state.does_without(error);
            for feature in self.features.each() {
                lacks_fields |= feature.does_without(error);
            }
            let is_new = || !error.is_refusal() || self.core.state.is_newly_refused(name, &sent);
            if !lacks_fields && is_new() {
                tracing::warn!("cannot import {name}: {error}; trying again");
            }
        }
        self.core.state.imports.end(name, sent.failure.is_some(), now);
        if !lacks_fields {
            self.core.state.note_sent(name, &sent);
            self.tell_notices();
        }
    }

    fn note_lease(&mut self, error: Option<&ApplyError>, now: Instant) {
        let result = if error.is_none() { "ok" } else { "error" };
        self.core.published.metrics.lease_writes.with_label_values(&[result]).inc();
        let mailbox = &self.core.state.settings.mailbox;
        let error = error.map(ToString::to_string);
        match (self.lease_renewals.note(error.as_deref(), now), error) {
            (Turn::Fails, Some(error)) => tracing::warn!(
                "cannot renew the Lease publisher of mailbox {mailbox}: {error}; trying again. Other clusters keep \
                 what they have of this one"
            ),
            (Turn::Recovered, _) => {
                tracing::info!("the Lease publisher of mailbox {mailbox} is renewed again");
            }
            _ => {}
        }
    }

    fn note_token(&mut self, secret: &str, result: anyhow::Result<Timestamp>) {
        let label = if result.is_ok() { "ok" } else { "error" };
        self.core.published.metrics.renewals.with_label_values(&[secret, label]).inc();
        let error = result.as_ref().err().map(told);
        let turn = self.token_failures.note(secret.to_owned(), error.as_deref());
        match (result, error) {
            (Ok(expires), _) => {
                tracing::info!("the token in Secret {secret} is renewed, and expires at {expires}");
            }
            (Err(_), Some(error)) if turn == Turn::Fails => {
                tracing::warn!("cannot renew the token in Secret {secret}: {error}; trying again");
            }
            _ => {}
        }
    }

    fn note_status(&mut self, peer: &PeerName, error: Option<ApplyError>) {
        let error = error.map(|error| error.to_string());
        if error.is_some() {
            self.core.published.metrics.peers.status_errors.with_label_values(&[peer]).inc();
        }
        match (self.status_failures.note(Arc::clone(peer), error.as_deref()), error) {
            (Turn::Fails, Some(error)) => tracing::warn!(
                "cannot write the status of ClusterPeer {peer}, which stays as it was: {error}; trying again"
            ),
            (Turn::Recovered, _) => {
                tracing::info!("the status of ClusterPeer {peer} is written again");
            }
            _ => {}
        }
    }

    fn count(&self, target: &str, is_ok: bool) {
        let result = if is_ok { "ok" } else { "error" };
        self.core.published.metrics.writes.with_label_values(&[target, result]).inc();
    }
}
