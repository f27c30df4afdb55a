//! Handles the results of tasks.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use mcs_kube::told;

use super::{super::contests::Contested, Control, TaskResult, writes::PlanResult};
use crate::{
    apply::ApplyError, clusterset::ServiceName, peers::PeerName, plan::Write, status::Turn,
};

/// The fields that definitions of ServiceImport and ServiceExport may lack.
const FIELDS: [&str; 4] =
    ["endpointSliceObjects", "clusterSelectorResults", "observedGeneration", ".status.conditions"];

impl Control {
    /// Notes how a write has ended.
    pub(super) fn finish(&mut self, done: TaskResult) {
        let now = Instant::now();
        match done {
            TaskResult::Import(name, result) => self.note_import(&name, result, now),
            TaskResult::Publication(name, sent) => {
                self.count("mailbox", sent.failure.is_none());
                self.state.publications.end(&name, sent.failure.is_some(), now);
                let has_changed = self.state.note_publication(&name, &sent);
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
                            self.state.own_mailbox.lists(),
                            now,
                        ) {
                            // Another writer has changed the object, and the watch may be late.
                            self.mailbox_watches = self.watch_own_mailbox();
                        }
                    }
                }
            }
            TaskResult::Token(secret, result) => self.note_token(&secret, result),
            TaskResult::Writer(name, contested, result) => {
                self.note_writer(&name, &contested, result);
            }
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
            TaskResult::Round(round) => self.rounds.note(round),
            TaskResult::Names(round) => self.note_names(&round),
            TaskResult::Rights(missing) => self.note_rights(missing),
            TaskResult::Property(name, value, result) => {
                self.property_writes.end(name);
                let problem = result
                    .err()
                    .map(|error| format!("cannot write ClusterProperty {name}: {error}"));
                if problem.is_none() {
                    tracing::info!("agents are told by ClusterProperty {name}: {value}");
                }
                self.note_untold(name, "write", problem);
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
            self.state.note_derived_stays(name.clone(), now);
        }
        self.budgets.give_back(&sent.unsent, now);
        self.measure(&sent.made);
        for write in &sent.made {
            if let Write::ApplyImport(import) = write {
                self.state.own.note_applied(import);
            }
            self.acceptances.note(write, now);
            self.contests.note(write);
        }
        let mut lacks_fields = false;
        if let Some(error) = &sent.failure {
            lacks_fields = FIELDS.iter().any(|field| error.is_unknown_field(field));
            if error.is_unknown_field("endpointSliceObjects") {
                self.state.leave_out_slice_objects();
            }
            if error.is_unknown_field("clusterSelectorResults") {
                self.state.leave_out_selector_results();
            } else if error.is_unknown_field("observedGeneration") {
                self.state.leave_out_generation();
            } else if error.is_unknown_field(".status.conditions") {
                if self.acceptances.note_no_conditions() {
                    tracing::warn!(
                        "the type ServiceImport has no conditions: imports of other controllers do not say whether \
                         they are accepted"
                    );
                }
            } else if !error.is_refusal() || self.state.is_newly_refused(name, &sent) {
                tracing::warn!("cannot import {name}: {error}; trying again");
            }
        }
        self.state.imports.end(name, sent.failure.is_some(), now);
        if !lacks_fields {
            self.state.note_sent(name, &sent);
            let notices = self.state.take_notices();
            self.tell(notices);
        }
    }

    fn note_lease(&mut self, error: Option<&ApplyError>, now: Instant) {
        let result = if error.is_none() { "ok" } else { "error" };
        self.published.metrics.lease_writes.with_label_values(&[result]).inc();
        let mailbox = &self.settings.mailbox;
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
        self.published.metrics.renewals.with_label_values(&[secret, label]).inc();
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
            self.published.metrics.peers.status_errors.with_label_values(&[peer]).inc();
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

    pub(super) fn note_untold(
        &mut self,
        name: &'static str,
        what: &'static str,
        problem: Option<String>,
    ) {
        let turn = self.untold.note((name, what), problem.as_deref());
        match (turn, problem) {
            (Turn::Fails, Some(problem)) => {
                tracing::warn!("{problem}; ClusterProperty {name} stays as agents last read it");
                self.tell_untold(name, &format!("agents go by what it says: {problem}"));
            }
            (Turn::Recovered, _) => {
                tracing::info!("agents are told by ClusterProperty {name} again");
                self.tell_told(name);
            }
            _ => {}
        }
    }

    /// Reports that peers do not get all ClusterProperties.
    pub(super) fn note_properties(&mut self, left_out: usize) {
        let problem = (left_out > 0).then(|| {
            format!("{left_out} ClusterProperties are more than peers get: no cluster selector sees them")
        });
        let turn = self.untold.note(("properties", "publish"), problem.as_deref());
        match (turn, problem) {
            (Turn::Fails, Some(problem)) => tracing::warn!("{problem}"),
            (Turn::Recovered, _) => tracing::info!("peers get all ClusterProperties again"),
            _ => {}
        }
    }

    /// Reports who else writes an object.
    fn note_writer(
        &mut self,
        name: &ServiceName,
        Contested { part, key }: &Contested,
        result: Result<Option<String>, ApplyError>,
    ) {
        let writer = match result {
            Ok(writer) => writer.unwrap_or_else(|| "another controller".to_owned()),
            Err(error) => {
                tracing::debug!("cannot ask who writes {} {key}: {error}", part.kind());
                "another controller".to_owned()
            }
        };
        if self.writers.note(*part, &writer) {
            let (objects, remedy) = (part.objects(), part.remedy());
            tracing::warn!(
                "{writer} rewrites {objects}, such as {key}: this controller writes them less and less often. {remedy}"
            );
        }
        let notice = self.state.contest_notice(name, *part, key, &writer);
        self.tell(notice.into_iter().collect());
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
