//! Writes the status of ClusterPeers and events, and sets metrics.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{Control, TaskResult};
use crate::{
    clusterset::{ClusterId, ExportState, well_known},
    objects::ClusterPeerStatus,
    peers::{Peer, PeerName},
    server::PeerBounds,
    status::{
        Notice, OwnRanges, PeerNotes, event, has_turned, peer_notices, peer_status_request,
        peer_statuses,
    },
};

/// How often the status of a peer is written while its conditions do not change.
const REPORTS: Duration = Duration::from_secs(10);
/// The most troubled services that metrics name.
const NAMED_SERVICES: usize = 20;

impl Control {
    /// Writes events. An event whose write fails is lost.
    pub(super) fn tell(&mut self, notices: Vec<Notice>) {
        let now = Instant::now();
        for notice in notices {
            if !self.events.take(&notice, now) {
                continue;
            }
            let replica = self.settings.identity.as_deref().unwrap_or(well_known::CONTROLLER);
            let request = event(&notice, replica, Timestamp::now());
            let access = Arc::clone(&self.access);
            self.tasks
                .push(Box::pin(async move { TaskResult::Event(request.send(&access).await) }));
        }
    }

    pub(super) fn statuses(&self, now: Instant) -> Vec<(PeerName, ClusterPeerStatus)> {
        let state = &self.state;
        let rejected = state.rejected();
        let waiting = state.import_states().without_namespace();
        let untold = self.untold_traffic(now);
        let refused = |cluster: &ClusterId| {
            let untold = self.untold_of(cluster, untold.as_ref());
            let told: Vec<_> = state.refused_of(cluster).into_iter().chain(untold).collect();
            (!told.is_empty()).then(|| told.join(" "))
        };
        let notes = |name: &PeerName, peer: &Peer| PeerNotes {
            rejected: rejected.get(&peer.object.cluster).cloned().unwrap_or_default(),
            token_problem: self.token_failures.reason(&peer.object.secret.name),
            without_namespace: peer.exports_of(waiting),
            refused: refused(&peer.object.cluster),
            has_tried: state.has_tried(name),
            ways: self.settings.probe_period().map(|_| self.rounds.reach.of(name)),
            masqueraded: self.rounds.sources.masqueraded(name),
            has_probed: self.rounds.has_begun,
        };
        let reserved = state.reserved_ranges();
        let ranges = OwnRanges::new(state.pod_ranges(), &reserved, state.own.node_addresses());
        let membership = state.membership();
        peer_statuses(&state.peers, state.cluster(), &ranges, &membership, notes, now)
    }

    /// Sets the metrics of the queues, of imports and of the own mailbox.
    pub(super) fn measure_state(&mut self, now: Instant) {
        let metrics = &self.published.metrics;
        for (target, queue) in
            [("cluster", &self.state.imports), ("mailbox", &self.state.publications)]
        {
            metrics.waiting.with_label_values(&[target]).set(queue.waiting());
        }
        let age = i64::try_from(self.lease_renewals.age(now).as_secs()).unwrap_or(i64::MAX);
        metrics.lease_age.with_label_values(&[&self.settings.mailbox]).set(age);
        metrics.set_imports(self.state.import_states().counts());
        metrics.set_exports(self.state.export_states().counts(ExportState::ALL));
        let troubled = self.state.import_states().troubled(NAMED_SERVICES);
        metrics.set_troubled(&self.measured_services, &troubled, Timestamp::now());
        self.measured_services = troubled;
        metrics.set_contested(self.contests.counts());
    }

    /// Sets the metrics of peers that are not in their status.
    fn report_bounds(&self) {
        let waiting = self.budgets.waiting();
        for (name, peer) in self.state.peers.all() {
            let bounds = PeerBounds {
                left_out: peer.view.left_out(),
                ignored: peer.view.ignored(),
                waiting: waiting.get(&peer.object.cluster).copied().unwrap_or_default(),
            };
            let metrics = &self.published.metrics.peers;
            metrics.set_bounds(name, &bounds);
            metrics.set_reach(name, &self.rounds.reach.of(name));
        }
    }

    /// Writes the status of peers, and sets their metrics.
    pub(super) fn report(&mut self, now: Instant) {
        let is_gone =
            |name: &PeerName, _: &mut Instant| self.state.peers.written_status(name).is_none();
        for (name, _) in self.reported.extract_if(is_gone) {
            self.published.metrics.peers.remove(&name);
        }
        self.report_bounds();
        for (name, status) in self.statuses(now) {
            self.published.metrics.peers.set(&name, &status);
            let Some(written) = self.state.peers.written_status(&name) else { continue };
            self.published.metrics.peers.set_since(&name, written);
            let was_reported = self.reported.get(&name).is_some_and(|at| now < *at + REPORTS);
            if was_reported && !has_turned(&status, written) {
                continue;
            }
            let Some(request) = peer_status_request(&name, &status, written) else { continue };
            if !self.reporting.insert(Arc::clone(&name)) {
                continue;
            }
            let version = self.state.peers.version(&name).cloned().unwrap_or_default();
            let notices = peer_notices(&name, &version, &status, written);
            self.tell(notices);
            self.reported.insert(Arc::clone(&name), now);
            let access = Arc::clone(&self.access);
            self.tasks.push(Box::pin(async move {
                let result = request.send(&access).await;
                TaskResult::PeerStatus(name, result)
            }));
        }
    }
}
