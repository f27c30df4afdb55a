//! Writes the status of ClusterPeers and events, and sets metrics.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Control, TaskResult};
use crate::core::{
    clock,
    clusterset::{ClusterId, ExportState, well_known},
    objects::ClusterPeerStatus,
    peers::{Peer, PeerName},
    server::PeerBounds,
    status::{
        Notice, PeerNotes, event, has_turned, peer_notices, peer_status_request, peer_statuses,
    },
};

/// How often the status of a peer is written while its conditions do not change.
const REPORTS: Duration = Duration::from_secs(10);

impl Control {
    /// Writes the events of the state and of the features.
    pub(super) fn tell_notices(&mut self) {
        let notices = self.core.state.take_notices();
        self.tell(notices);
    }

    /// Writes events. An event whose write fails is lost.
    pub(super) fn tell(&mut self, notices: Vec<Notice>) {
        let now = clock::now();
        for notice in notices {
            if !self.events.take(&notice, now) {
                continue;
            }
            let replica =
                self.core.state.settings.identity.as_deref().unwrap_or(well_known::CONTROLLER);
            let request = event(&notice, replica, clock::time_of_day());
            let access = Arc::clone(&self.core.access);
            self.tasks
                .push(Box::pin(async move { TaskResult::Event(request.send(&access).await) }));
        }
    }

    pub(super) fn statuses(&self, now: Instant) -> Vec<(PeerName, ClusterPeerStatus)> {
        let state = &self.core.state;
        let rejected = state.rejected();
        let waiting = state.import_states().without_namespace();
        let refused = |cluster: &ClusterId| {
            let untold = self.features.all().filter_map(|one| one.unwritten(cluster, state));
            let told: Vec<_> = state.refused_of(cluster).into_iter().chain(untold).collect();
            (!told.is_empty()).then(|| told.join(" "))
        };
        let notes = |name: &PeerName, peer: &Peer| PeerNotes {
            rejected: rejected.get(&peer.object.cluster).cloned().unwrap_or_default(),
            token_problem: self.token_failures.reason(&peer.object.secret.name),
            without_namespace: peer.exports_of(waiting),
            refused: refused(&peer.object.cluster),
            has_tried: state.has_tried(name),
            conditions: self
                .features
                .all()
                .filter_map(|one| one.peer_condition(name, peer))
                .collect(),
        };
        let membership = state.membership();
        peer_statuses(&state.peers, state.cluster(), &membership, notes, now)
    }

    /// Sets the metrics of the queues, of imports and of the own mailbox.
    pub(super) fn measure_state(&mut self, now: Instant) {
        let metrics = &self.core.published.metrics;
        for (target, queue) in
            [("cluster", &self.core.state.imports), ("mailbox", &self.core.state.publications)]
        {
            metrics.waiting.with_label_values(&[target]).set(queue.waiting());
        }
        let age = i64::try_from(self.lease_renewals.age(now).as_secs()).unwrap_or(i64::MAX);
        metrics.lease_age.with_label_values(&[&self.core.state.settings.mailbox]).set(age);
        metrics.set_imports(self.core.state.import_states().counts());
        metrics.set_exports(self.core.state.export_states().counts(ExportState::ALL));
    }

    /// Sets the metrics of peers that are not in their status.
    fn report_bounds(&self, now: Instant) {
        for (name, peer) in self.core.state.peers.all() {
            let bounds = PeerBounds {
                left_out: peer.view.left_out(),
                ignored: peer.view.ignored(),
                waiting: self.core.state.imports.waiting_for_tokens(&peer.object.cluster, now),
            };
            let metrics = &self.core.published.metrics.peers;
            metrics.set_bounds(name, &bounds);
        }
    }

    /// Writes the status of peers, and sets their metrics.
    pub(super) fn report(&mut self, now: Instant) {
        let is_gone =
            |name: &PeerName, _: &mut Instant| self.core.state.peers.written_status(name).is_none();
        for (name, _) in self.reported.extract_if(is_gone) {
            self.core.published.metrics.peers.remove(&name);
        }
        self.report_bounds(now);
        for (name, status) in self.core.peers.clone().unwrap_or_default() {
            self.core.published.metrics.peers.set(&name, &status);
            let Some(written) = self.core.state.peers.written_status(&name) else { continue };
            self.core.published.metrics.peers.set_since(&name, written);
            let was_reported = self.reported.get(&name).is_some_and(|at| now < *at + REPORTS);
            if was_reported && !has_turned(&status, written) {
                continue;
            }
            let Some(request) = peer_status_request(&name, &status, written) else { continue };
            if !self.reporting.insert(Arc::clone(&name)) {
                continue;
            }
            let version = self.core.state.peers.version(&name).cloned().unwrap_or_default();
            let notices = peer_notices(&name, &version, &status, written);
            self.tell(notices);
            self.reported.insert(Arc::clone(&name), now);
            let access = Arc::clone(&self.core.access);
            self.tasks.push(Box::pin(async move {
                let result = request.send(&access).await;
                TaskResult::PeerStatus(name, result)
            }));
        }
    }
}
